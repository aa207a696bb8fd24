// .npy files and .npz archives of a test's own.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe::test {

inline std::string little_endian(std::uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) {
    text += static_cast<char>(number >> (8 * i));
  }
  return text;
}

/// A .npy file with this dictionary.
inline std::string npy_file(std::string_view dictionary,
                            std::string_view elements,
                            int version = 1) {
  return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} +
         little_endian(dictionary.size(), version == 1 ? 2 : 4) + std::string(dictionary) +
         std::string(elements);
}

template <class T>
std::string npy_dictionary(const std::string& shape) {
  const char* type = std::is_same_v<T, float>          ? "<f4"
                     : std::is_same_v<T, double>       ? "<f8"
                     : std::is_same_v<T, std::uint8_t> ? "|u1"
                     : std::is_same_v<T, std::int32_t> ? "<i4"
                                                       : "<i8";
  return std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': " + shape +
         ", }    \n";
}

/// Of numbers in a shape as NumPy prints it, "(2, 3)" or "(4,)".
template <class T>
std::string npy(const std::string& shape, const std::vector<T>& numbers, int version = 1) {
  std::string elements(numbers.size() * sizeof(T), '\0');
  std::memcpy(elements.data(), numbers.data(), elements.size());
  return npy_file(npy_dictionary<T>(shape), elements, version);
}

inline std::string deflated(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

struct ZipEntry {
  std::string name;
  std::string content;
  bool packed = false;
  std::int64_t size_off = 0;  // what is wrong with the size that the directory says
};

/// As NumPy's savez and savez_compressed write it.
inline std::string zip_archive(const std::vector<ZipEntry>& entries) {
  std::string archive;
  std::string directory;
  for (const ZipEntry& entry : entries) {
    const std::string body = entry.packed ? deflated(entry.content) : entry.content;
    const auto crc =
        crc32_z(0, reinterpret_cast<const Bytef*>(entry.content.data()), entry.content.size());
    const auto size = static_cast<std::uint64_t>(static_cast<std::int64_t>(entry.content.size()) +
                                                 entry.size_off);
    const std::string facts = little_endian(0, 2) + little_endian(entry.packed ? 8 : 0, 2) +
                              little_endian(0, 4) + little_endian(crc, 4);
    const std::size_t at = archive.size();
    archive += little_endian(0x04034b50, 4) + little_endian(45, 2) + facts +
               little_endian(0xffffffff, 4) + little_endian(0xffffffff, 4) +  // in the extra field
               little_endian(entry.name.size(), 2) + little_endian(20, 2) + entry.name +
               little_endian(1, 2) + little_endian(16, 2) + little_endian(size, 8) +
               little_endian(body.size(), 8) + body;
    directory += little_endian(0x02014b50, 4) + little_endian(45, 2) + little_endian(45, 2) +
                 facts + little_endian(body.size(), 4) + little_endian(size, 4) +
                 little_endian(entry.name.size(), 2) + std::string(12, '\0') +
                 little_endian(at, 4) + entry.name;
  }
  const std::size_t begin = archive.size();
  return archive + directory + little_endian(0x06054b50, 4) + little_endian(0, 4) +
         little_endian(entries.size(), 2) + little_endian(entries.size(), 2) +
         little_endian(directory.size(), 4) + little_endian(begin, 4) + little_endian(0, 2);
}

}  // namespace troupe::test
