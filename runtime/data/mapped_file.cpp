#include "runtime/data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace troupe {

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  const auto refused = [](const char* what, int code) {
    return Error{ErrorKind::data, concat(what, std::system_category().message(code))};
  };
  // A pipe without a writer would keep us waiting.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return refused("it cannot be opened: ", errno);
  }

  struct stat status {};

  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) {
    ::close(file);
    return Error{ErrorKind::data, "it is not a file, or empty"};
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) {
    const int code = errno;
    ::close(file);
    return refused("it cannot be mapped into memory: ", code);
  }
  return std::shared_ptr<const MappedFile>(
      new MappedFile(file, static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(data_), size_);
  ::close(file_);
}

bool MappedFile::is_whole() const {
  struct stat status {};

  return ::fstat(file_, &status) == 0 && static_cast<std::size_t>(status.st_size) >= size_;
}

}  // namespace troupe
