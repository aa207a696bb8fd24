#include "runtime/record/output_file.hpp"

#include "kernels/wording.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

std::string reason(int code) {
  return std::system_category().message(code);
}

/// For resume(), and for who looks whether a run goes on and has the lock for a moment (LOCK_SH), which one waits for. False:
/// another has it. Where the file system has no locks nobody is kept out.
bool locked(int descriptor) {
  constexpr int kTries = 100;
  constexpr std::chrono::milliseconds kPause{10};
  for (int i = 0; i < kTries; ++i) {
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
      return true;
    }
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace

FilePlace::FilePlace(const std::filesystem::path& path) {
  std::error_code code;

  struct stat status {};

  if (::stat(path.c_str(), &status) == 0) {
    path_ = std::filesystem::absolute(path, code);
    device_ = static_cast<std::uint64_t>(status.st_dev);
    number_ = static_cast<std::uint64_t>(status.st_ino);
  }
}

bool FilePlace::in_place() const {
  struct stat status {};

  return path_.empty() || (::stat(path_.c_str(), &status) == 0 &&
                           static_cast<std::uint64_t>(status.st_dev) == device_ &&
                           static_cast<std::uint64_t>(status.st_ino) == number_);
}

OutputFile::OutputFile(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {
  struct stat status {};

  // Devices and pipes have names that say nothing of them.
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
    place_ = FilePlace(path_);
  }
}

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return Error{ErrorKind::lost, concat(path.string(), " could not be created: ", reason(errno))};
  }
  locked(descriptor);  // what it makes anew is nobody else's, in a folder of its own
  return std::unique_ptr<OutputFile>(new OutputFile(path, descriptor));
}

Result<std::unique_ptr<OutputFile>> OutputFile::resume(const std::filesystem::path& path,
                                                       std::int64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return Error{ErrorKind::lost, concat(path.string(), " could not be opened: ", reason(errno))};
  }
  std::unique_ptr<OutputFile> file(new OutputFile(path, descriptor));
  if (!locked(descriptor)) {
    return Error{ErrorKind::usage,
                 concat(path.string(), " is being written by a run that goes on")};
  }
  const off_t size = ::lseek(descriptor, 0, SEEK_END);
  if (size < bytes) {
    return Error{ErrorKind::data,
                 fill_in("{} has {} bytes, but had {} when the checkpoint was made",
                         path.string(),
                         size,
                         bytes)};
  }
  if (::ftruncate(descriptor, bytes) != 0 || ::lseek(descriptor, bytes, SEEK_SET) != bytes) {
    return Error{ErrorKind::lost, concat(path.string(), " could not be cut: ", reason(errno))};
  }
  file->bytes_ = bytes;
  return file;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) {
    drain();
    ::close(descriptor_);
  }
}

void OutputFile::write(std::string_view text) {
  if (failed()) {
    return;
  }
  bytes_ += static_cast<std::int64_t>(text.size());
  // What is larger than the buffer goes through it in pieces.
  for (; text.size() > kBufferBytes; text.remove_prefix(kBufferBytes)) {
    buffer_ += text.substr(0, kBufferBytes);
    drain();
  }
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) {
    drain();
  }
}

Result<void> OutputFile::flush() {
  drain();
  expect_in_place();
  return outcome();
}

Result<void> OutputFile::close() {
  drain();
  if (descriptor_ >= 0) {
    expect_in_place();
    // Some file systems find out only now that there is no room; devices and pipes have no disk to
    // go to (EINVAL).
    if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
      fail(reason(errno));
    }
    if (::close(std::exchange(descriptor_, -1)) != 0) {
      fail(reason(errno));
    }
  }
  return outcome();
}

void OutputFile::drain() {
  std::size_t written = 0;
  while (!failed() && descriptor_ >= 0 && written < buffer_.size()) {
    const ssize_t n = ::write(descriptor_, buffer_.data() + written, buffer_.size() - written);
    if (n > 0) {
      written += static_cast<std::size_t>(n);
    } else if (n == 0 || errno != EINTR) {
      fail(reason(n == 0 ? ENOSPC : errno));
    }
  }
  buffer_.clear();
}

void OutputFile::expect_in_place() {
  if (!in_place()) {
    fail("it was removed, moved or replaced by another while it was being written");
  }
}

void OutputFile::fail(const std::string& how) {
  if (!failed_.exchange(true)) {
    failure_ = concat(path_.string(), " could not be written: ", how);
  }
}

Result<void> OutputFile::outcome() const {
  if (failed()) {
    return Error{ErrorKind::lost, failure_};
  }
  return {};
}

void sync_path(const std::filesystem::path& path) {
  if (const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

Result<void> replace_file(const std::filesystem::path& path,
                          const std::function<void(OutputFile&)>& write) {
  std::error_code code;
  const auto before = std::filesystem::status(path, code);
  if (std::filesystem::exists(before) && !std::filesystem::is_regular_file(before)) {
    return Error{ErrorKind::lost, concat(path.string(), " could not be written: it is no file")};
  }
  std::filesystem::path partial = path;
  partial += ".partial";
  auto file = OutputFile::create(partial);
  TROUPE_TRY(file);
  write(**file);
  auto outcome = (*file)->close();
  if (outcome) {
    if (std::filesystem::exists(before)) {  // what is kept from others stays so
      std::filesystem::permissions(partial, before.permissions(), code);
    }
    std::filesystem::rename(partial, path, code);
    if (code) {
      outcome =
          Error{ErrorKind::lost, concat(path.string(), " could not be written: ", code.message())};
    }
  }
  if (!outcome) {
    std::filesystem::remove(partial, code);
  }
  return outcome;
}

Result<void> write_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code code;
  const auto named = std::filesystem::symlink_status(path, code);
  if (std::filesystem::exists(named) && !std::filesystem::is_regular_file(named)) {
    // A link (/dev/stdout is one), a pipe or a device stays what it is, and nothing is put beside it.
    auto file = OutputFile::create(path);
    TROUPE_TRY(file);
    (*file)->write(text);
    return (*file)->close();
  }
  return replace_file(path, [text](OutputFile& file) { file.write(text); });
}

bool is_empty_folder(const std::filesystem::path& path) {
  std::error_code code;
  return std::filesystem::is_directory(path, code) && std::filesystem::is_empty(path, code) &&
         !code;
}

Result<void> make_run_directory(const std::filesystem::path& named) {
  // "runs/a/" is "runs/a".
  const std::filesystem::path path = named.has_filename() ? named : named.parent_path();
  std::error_code code;
  if (is_empty_folder(path)) {
    return {};
  }
  const bool here = std::filesystem::exists(std::filesystem::symlink_status(path, code));
  if (!here) {
    code.clear();
    if (path.has_parent_path()) {
      std::filesystem::create_directories(path.parent_path(), code);
    }
    if (!code && std::filesystem::create_directory(path, code)) {
      return {};
    }
    if (code) {
      return Error{
          ErrorKind::lost,
          concat("the run directory ", path.string(), " could not be made: ", code.message())};
    }
  }
  return Error{ErrorKind::usage,
               concat("--out: ",
                      path.string(),
                      " exists already; name a new folder, a run never overwrites another")};
}

}  // namespace troupe
