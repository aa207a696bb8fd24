#include "runtime/data/token_file.hpp"

#include "kernels/wording.hpp"
#include "runtime/data/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

namespace troupe {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kHeaderNumbers = 256;

/// What llm.c writes before the tokens of a model family.
struct TokenHeader {
  std::int32_t magic;
  std::int32_t version;
  std::size_t width;
};

constexpr std::array<TokenHeader, 2> kTokenHeaders{{{20240520, 1, 2}, {20240801, 7, 4}}};

std::string system_text(int code) {
  return std::system_category().message(code);
}

}  // namespace

Error TokenFile::unusable(const std::string& what) const {
  return {ErrorKind::data, concat(path_, " is not usable: ", what)};
}

Result<std::shared_ptr<const TokenFile>> TokenFile::open(const std::string& path,
                                                         std::size_t width,
                                                         std::int64_t vocabulary) {
  // A pipe without a writer would keep us waiting.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return Error{ErrorKind::data, concat(path, " is not usable: ", cannot_be_opened(path, errno))};
  }
  const std::shared_ptr<TokenFile> opened(new TokenFile(path, file, width, vocabulary));
  TROUPE_TRY(opened->learn_size());
  return std::shared_ptr<const TokenFile>(opened);
}

TokenFile::~TokenFile() {
  ::close(file_);
}

/// Where the tokens begin, how wide and how many they are; of llm.c's files by their header.
Result<void> TokenFile::learn_size() {
  struct stat facts {};

  if (::fstat(file_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return unusable("it is not a file");
  }
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  std::array<std::int32_t, kHeaderNumbers> numbers{};
  if (bytes >= sizeof numbers) {
    TROUPE_TRY(read_bytes(0, std::as_writable_bytes(std::span(numbers))));
  }
  const auto header =
      std::ranges::find_if(kTokenHeaders, [&](const auto& h) { return h.magic == numbers[0]; });
  if (header == kTokenHeaders.end()) {
    size_ = static_cast<std::int64_t>(bytes / width_);
    return bytes % width_ == 0
               ? Result<void>()
               : unusable(
                     fill_in("it is {} bytes long, which is no whole number of tokens of {} bytes",
                             bytes,
                             width_));
  }
  begin_ = sizeof numbers;
  width_ = header->width;
  size_ = numbers[2];
  if (numbers[1] != header->version) {
    return unusable(
        concat("its header is of version ", numbers[1], "; expected ", header->version));
  }
  const auto behind = static_cast<std::int64_t>(bytes - begin_);
  if (size_ * static_cast<std::int64_t>(width_) != behind) {
    return unusable(
        fill_in("its header promises {} tokens of {} bytes, and behind it there are {} bytes",
                size_,
                width_,
                behind));
  }
  return {};
}

Result<void> TokenFile::read_bytes(std::size_t at, std::span<std::byte> to) const {
  for (std::size_t done = 0; done < to.size();) {
    const ssize_t got =
        ::pread(file_, to.data() + done, to.size() - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return unusable(got < 0
                          ? "it cannot be read: " + system_text(errno)
                          : concat("it ends at byte ", at + done, " now and was longer before"));
    }
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Result<void> TokenFile::read(std::int64_t first, std::span<std::int32_t> to) const {
  std::vector<std::byte> bytes(to.size() * width_);
  TROUPE_TRY(read_bytes(begin_ + static_cast<std::size_t>(first) * width_, bytes));
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint32_t token = 0;
    std::memcpy(&token, bytes.data() + i * width_, width_);
    if (token >= static_cast<std::uint64_t>(vocabulary_)) {
      return unusable(
          fill_in("token {} is {}, where data.tokens.vocabulary is {}: expected 0 to {}",
                  first + static_cast<std::int64_t>(i),
                  token,
                  vocabulary_,
                  vocabulary_ - 1));
    }
    to[i] = static_cast<std::int32_t>(token);
  }
  return {};
}

}  // namespace troupe
