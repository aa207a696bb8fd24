#include "runtime/data/zip.hpp"

#include "runtime/record/json.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {
namespace {

constexpr std::uint32_t kEndMagic = 0x06054b50;
constexpr std::uint32_t kCentralMagic = 0x02014b50;
constexpr std::uint32_t kLocalMagic = 0x04034b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kCentralBytes = 46;
constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kCommentMax = 65535;
constexpr std::size_t kDeflateMost = 1032;  // bytes that one byte of deflate can become
constexpr std::size_t kNamesShown = 12;

/// An entry of the archive's directory.
struct ZipMember {
  std::string_view name;
  std::size_t method = 0;
  std::size_t flags = 0;
  std::uint32_t crc = 0;
  std::size_t packed = 0;
  std::size_t size = 0;
  std::size_t header = 0;  // where its local header is
};

Error zip_error(std::string what) {
  return {ErrorKind::data, std::move(what)};
}

std::size_t zip_number(const Bytes& bytes, std::size_t at, std::size_t digits) {
  std::size_t number = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    number |= std::size_t{bytes[at + i]} << (8 * i);
  }
  return number;
}

/// Where the record is that ends the archive; only a comment may follow.
std::optional<std::size_t> end_record(const Bytes& bytes) {
  if (bytes.size() < kEndBytes) {
    return std::nullopt;
  }
  const std::size_t last = bytes.size() - kEndBytes;
  for (std::size_t comment = 0; comment <= std::min(last, kCommentMax); ++comment) {
    const std::size_t at = last - comment;
    if (zip_number(bytes, at, 4) == kEndMagic && zip_number(bytes, at + 20, 2) == comment) {
      return at;
    }
  }
  return std::nullopt;
}

Result<std::vector<ZipMember>> zip_members(const Bytes& bytes) {
  const auto end = end_record(bytes);
  if (!end) {
    return zip_error("it is no zip archive, or is cut short: its directory is missing");
  }
  const std::size_t count = zip_number(bytes, *end + 10, 2);
  std::size_t at = zip_number(bytes, *end + 16, 4);
  if (at == 0xffffffff || count == 0xffff) {
    return zip_error("it is larger than 2 GiB (zip64); write its arrays as .npy files");
  }
  std::vector<ZipMember> members;
  for (std::size_t i = 0; i < count; ++i) {
    const bool fits = at + kCentralBytes <= *end && zip_number(bytes, at, 4) == kCentralMagic;
    const std::size_t name = fits ? zip_number(bytes, at + 28, 2) : 0;
    if (!fits || at + kCentralBytes + name > *end) {
      return zip_error(concat("entry ", i, " of its directory is damaged"));
    }
    members.push_back({.name = {reinterpret_cast<const char*>(&bytes[at + kCentralBytes]), name},
                       .method = zip_number(bytes, at + 10, 2),
                       .flags = zip_number(bytes, at + 8, 2),
                       .crc = static_cast<std::uint32_t>(zip_number(bytes, at + 16, 4)),
                       .packed = zip_number(bytes, at + 20, 4),
                       .size = zip_number(bytes, at + 24, 4),
                       .header = zip_number(bytes, at + 42, 4)});
    at += kCentralBytes + name + zip_number(bytes, at + 30, 2) + zip_number(bytes, at + 32, 2);
  }
  return members;
}

/// Where the packed bytes of a member begin; no value where they are not all in the archive.
std::optional<std::size_t> packed_begin(const Bytes& bytes, const ZipMember& member) {
  const std::size_t at = member.header;
  if (at + kLocalBytes > bytes.size() || zip_number(bytes, at, 4) != kLocalMagic) {
    return std::nullopt;
  }
  const std::size_t begin =
      at + kLocalBytes + zip_number(bytes, at + 26, 2) + zip_number(bytes, at + 28, 2);
  const bool fits = begin <= bytes.size() && member.packed <= bytes.size() - begin;
  return fits ? std::optional(begin) : std::nullopt;
}

/// Raw deflate of `packed` bytes at `from` that makes exactly `size`.
bool inflate_whole(const std::uint8_t* from, std::size_t packed, Bytes& out) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    return false;
  }
  stream.next_in = const_cast<Bytef*>(from);
  stream.avail_in = static_cast<uInt>(packed);  // 32 bits in the archive, too
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  const int code = inflate(&stream, Z_FINISH);
  const bool whole = code == Z_STREAM_END && stream.avail_in == 0 && stream.avail_out == 0;
  inflateEnd(&stream);
  return whole;
}

Result<Bytes> unpacked(const Bytes& bytes, const ZipMember& member) {
  const auto wrong = [&](const char* what) {
    return zip_error(concat("its member ", json_string(member.name), " ", what));
  };
  if (member.size == 0xffffffff || member.packed == 0xffffffff) {
    return wrong("is larger than 2 GiB (zip64); write it as a .npy file");
  }
  if ((member.flags & 1) != 0 || (member.method != 0 && member.method != 8)) {
    return wrong("is encrypted, or packed otherwise than by deflate");
  }
  const auto begin = packed_begin(bytes, member);
  const bool possible = member.method == 0 ? member.size == member.packed
                                           : member.size / kDeflateMost <= member.packed;
  if (!begin || !possible) {
    return wrong("is not where, or not as long as, the directory says");
  }
  const std::uint8_t* from = bytes.data() + *begin;
  Bytes out(member.size);
  if (member.method == 0) {
    std::copy_n(from, member.size, out.begin());
  } else if (!inflate_whole(from, member.packed, out)) {
    return wrong("is damaged: it does not inflate to the size that the directory says");
  }
  if (crc32_z(0, out.data(), out.size()) != member.crc) {
    return wrong("is damaged: its CRC-32 differs from what the directory says");
  }
  return out;
}

}  // namespace

Result<Bytes> unzip(const Bytes& archive, std::string_view name) {
  const auto members = zip_members(archive);
  if (!members) {
    return members.error();
  }
  std::string names;
  for (std::size_t i = 0; i < members->size(); ++i) {
    const ZipMember& member = (*members)[i];
    if (member.name == name) {
      return unpacked(archive, member);
    }
    if (i < kNamesShown) {
      names += (i == 0 ? "" : ", ") + json_string(member.name);
    }
  }
  return zip_error(
      concat("it has no member ", json_string(name), "; it has ", names.empty() ? "none" : names));
}

}  // namespace troupe
