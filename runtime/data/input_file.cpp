#include "runtime/data/input_file.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <system_error>

namespace troupe {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 16;    // asked for before they are there
constexpr std::size_t kInflation = 100;                     // times its size
constexpr std::size_t kInflatedMin = std::size_t{1} << 26;  // bytes that may come of any file

/// What to open that zlib does not: bzip2's, xz's and zstd's; null where it is none of these.
struct ::archive* open_packed(const std::string& path) {
  std::array<char, 4> head{};
  std::ifstream(path, std::ios::binary).read(head.data(), head.size());
  const std::string_view begin(head.data(), head.size());
  if (!begin.starts_with("BZh") &&
      begin !=
          "\xfd"
          "7zX" &&
      begin != "\x28\xb5\x2f\xfd") {
    return nullptr;
  }
  struct ::archive* const packed = archive_read_new();
  archive_read_support_filter_bzip2(packed);
  archive_read_support_filter_xz(packed);
  archive_read_support_filter_zstd(packed);
  archive_read_support_format_raw(packed);
  struct ::archive_entry* entry = nullptr;
  if (archive_read_open_filename(packed, path.c_str(), kReadBytes) == ARCHIVE_OK) {
    archive_read_next_header(packed, &entry);  // what is wrong is told by the first read
  }
  return packed;
}

}  // namespace

std::string cannot_be_opened(const std::filesystem::path& path, int number) {
  std::error_code code;
  const bool seen = number == ENOENT && path.is_relative();
  return concat("it cannot be opened: ",
                std::system_category().message(number),
                seen ? ", as seen from " + std::filesystem::current_path(code).string() : "");
}

InputFile::InputFile(const std::filesystem::path& path) : path_(path.string()) {
  std::error_code code;
  const auto kind = std::filesystem::status(path, code).type();
  if (kind != std::filesystem::file_type::regular &&
      kind != std::filesystem::file_type::not_found && !code) {
    refusal_ = "it is not a file";  // a pipe without a writer would keep us waiting
    return;
  }
  const std::uintmax_t size = std::filesystem::file_size(path, code);
  bytes_max_ = std::max(kInflatedMin, code ? 0 : kInflation * static_cast<std::size_t>(size));
  errno = 0;
  file_ = gzopen(path.c_str(), "rb");
  if (file_ == nullptr) {
    refusal_ = cannot_be_opened(path, errno);
    return;
  }
  packed_ = open_packed(path_);
}

InputFile::~InputFile() {
  if (file_ != nullptr) {
    gzclose(static_cast<gzFile>(file_));
  }
  archive_read_free(static_cast<struct ::archive*>(packed_));
}

bool InputFile::read(std::size_t count, Bytes& out) {
  if (file_ == nullptr) {
    return false;
  }
  while (count > 0) {
    const std::size_t chunk = std::min(count, kReadBytes);
    const std::size_t before = out.size();
    out.resize(before + chunk);
    const int got =
        packed_ != nullptr
            ? static_cast<int>(archive_read_data(
                  static_cast<struct ::archive*>(packed_), out.data() + before, chunk))
            : gzread(static_cast<gzFile>(file_), out.data() + before, static_cast<unsigned>(chunk));
    out.resize(before + static_cast<std::size_t>(std::max(got, 0)));
    bytes_read_ += static_cast<std::size_t>(std::max(got, 0));
    if (bytes_read_ > bytes_max_) {
      refusal_ = concat("it inflates to more than ", kInflation, " times its size");
      return false;
    }
    if (packed_ != nullptr && got > 0) {
      count -= static_cast<std::size_t>(got);  // it hands out less at a time
      continue;
    }
    if (packed_ != nullptr) {
      return got == 0;
    }
    if (got < static_cast<int>(chunk)) {
      // Of a .gz that is cut short gzread hands over what there is, and keeps the error.
      int code = Z_OK;
      gzerror(static_cast<gzFile>(file_), &code);
      return got >= 0 && (code == Z_OK || code == Z_STREAM_END);
    }
    count -= chunk;
  }
  return true;
}

std::string InputFile::error() const {
  if (!refusal_.empty()) {
    return refusal_;
  }
  if (packed_ != nullptr) {
    const char* const words = archive_error_string(static_cast<struct ::archive*>(packed_));
    return concat("its compressed data is damaged or cut short: ", words ? words : "");
  }
  int code = Z_OK;
  std::string text = gzerror(static_cast<gzFile>(file_), &code);
  if (text.starts_with(path_ + ": ")) {
    text.erase(0, path_.size() + 2);
  }
  return code == Z_BUF_ERROR ? "its compressed data is cut short" : text;
}

Result<Bytes> read_input_file(const std::filesystem::path& path, std::size_t bytes_max) {
  InputFile file(path);
  Bytes bytes;
  if (!file.read(bytes_max + 1, bytes)) {
    return Error{ErrorKind::data, concat(path.string(), " is not usable: ", file.error())};
  }
  if (bytes.size() > bytes_max) {
    return Error{ErrorKind::data,
                 concat(path.string(), " is not usable: it is longer than ", bytes_max, " bytes")};
  }
  return bytes;
}

}  // namespace troupe
