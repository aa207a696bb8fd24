#include "runtime/checkpoint/safetensors.hpp"

#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/checkpoint/safetensors_header.hpp"
#include "runtime/data/input_file.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

namespace troupe {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // as the format's own library

/// Bytes an element; 0 for a dtype that is not known.
std::int64_t width_of(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 16> kWidths{{{"BOOL", 1},
                                                                               {"U8", 1},
                                                                               {"I8", 1},
                                                                               {"F8_E5M2", 1},
                                                                               {"F8_E4M3", 1},
                                                                               {"I16", 2},
                                                                               {"U16", 2},
                                                                               {"F16", 2},
                                                                               {"BF16", 2},
                                                                               {"I32", 4},
                                                                               {"U32", 4},
                                                                               {"F32", 4},
                                                                               {"F64", 8},
                                                                               {"I64", 8},
                                                                               {"U64", 8},
                                                                               {"C64", 8}}};
  const auto row = std::find_if(
      kWidths.begin(), kWidths.end(), [&](const auto& width) { return width.first == dtype; });
  return row == kWidths.end() ? 0 : row->second;
}

/// width * extents, or nullopt where that cannot be counted.
std::optional<std::int64_t> product(std::int64_t width, const std::vector<std::int64_t>& extents) {
  // With a zero anywhere the others may be as they like.
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) {
    return 0;
  }
  for (const std::int64_t extent : extents) {
    if (__builtin_mul_overflow(width, extent, &width)) {
      return std::nullopt;
    }
  }
  return width;
}

// -- reading --------------------------------------------------------------------------------------

using RawBytes = std::span<const std::byte>;

struct Contents {
  std::shared_ptr<const void> owner;
  RawBytes bytes;
};

std::string reason(int code) {
  return std::system_category().message(code);
}

/// `size` bytes of `file`, or what is wrong with it.
Result<Contents> read_bytes(int file, std::size_t size) {
  std::shared_ptr<std::byte[]> bytes;
  try {
    bytes = std::make_shared_for_overwrite<std::byte[]>(size);
  } catch (const std::bad_alloc&) {
    return Error{ErrorKind::data, concat("there is no memory for its ", size, " bytes")};
  }
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = ::pread(file, bytes.get() + done, size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return Error{ErrorKind::data,
                   got < 0
                       ? "it cannot be read: " + reason(errno)
                       : concat("it became shorter than its ", size, " bytes while it was read")};
    }
    done += static_cast<std::size_t>(got);
  }
  const RawBytes all{bytes.get(), size};
  return Contents{std::move(bytes), all};
}

/// The whole file, or what is wrong with it. It is read and not mapped: where somebody shortens a
/// mapped file, the program that looks at it dies.
Result<Contents> read_whole(const std::filesystem::path& path) {
  // A pipe without a writer would keep us waiting.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return Error{ErrorKind::data, cannot_be_opened(path, errno)};
  }

  struct stat facts {};

  const bool regular = ::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
  const auto size = static_cast<std::size_t>(facts.st_size);
  Result<Contents> contents =
      regular && size >= kLengthBytes
          ? read_bytes(file, size)
          : Error{ErrorKind::data,
                  regular ? concat("it is only ", size, " bytes long") : "it is not a file"};
  ::close(file);
  return contents;
}

/// What the header says about one tensor, checked against the `data` behind it.
Result<SafetensorsEntry> checked(SafetensorsHeader::Tensor tensor, RawBytes data) {
  const auto wrong = [&](const std::string& what) {
    return Error{ErrorKind::data, concat("its tensor ", json_string(tensor.name), " ", what)};
  };
  const std::int64_t width = width_of(tensor.dtype);
  if (width == 0) {
    return wrong("has the unknown dtype " + json_string(tensor.dtype));
  }
  const auto size = product(width, tensor.shape);
  if (!size) {
    return wrong("has more elements than can be counted");
  }
  const std::vector<std::int64_t>& offsets = tensor.data_offsets;
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return wrong("has data_offsets that are not a first and a last one");
  }
  if (static_cast<std::uint64_t>(offsets[1]) > data.size()) {
    return wrong(concat("ends at byte ", offsets[1], " of ", data.size()));
  }
  if (offsets[1] - offsets[0] != *size) {
    return wrong(
        concat("has ", offsets[1] - offsets[0], " bytes where dtype and shape ask for ", *size));
  }
  return SafetensorsEntry{
      std::move(tensor.name),
      std::move(tensor.dtype),
      std::move(tensor.shape),
      data.subspan(static_cast<std::size_t>(offsets[0]), static_cast<std::size_t>(*size))};
}

/// Whether the entries, in whatever order, are all of `data`, each byte once.
bool fill_without_gaps(const std::vector<SafetensorsEntry>& entries, RawBytes data) {
  std::vector<RawBytes> parts;
  for (const SafetensorsEntry& entry : entries) {
    parts.push_back(entry.bytes);
  }
  std::sort(parts.begin(), parts.end(), [](RawBytes a, RawBytes b) {
    return std::pair(a.data(), a.size()) < std::pair(b.data(), b.size());
  });
  const std::byte* end = data.data();
  for (const RawBytes part : parts) {
    if (part.data() != end) {
      return false;
    }
    end += part.size();
  }
  return end == data.data() + data.size();
}

// -- numbers --------------------------------------------------------------------------------------

float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. Every one is a float.
float float_of_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1f;
  const std::uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero and subnormal numbers: fraction / 2^24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

template <class Convert>
std::vector<float> widened(RawBytes bytes, Convert convert) {
  std::vector<float> values(bytes.size() / sizeof(std::uint16_t));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;  // tensors of a file need not be aligned
    std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
    values[i] = convert(bits);
  }
  return values;
}

// -- writing --------------------------------------------------------------------------------------

std::string header_of(const std::vector<SafetensorsEntry>& entries,
                      const std::map<std::string, std::string>& metadata) {
  JsonObject header;
  if (!metadata.empty()) {
    JsonObject texts;
    for (const auto& [key, text] : metadata) {
      texts.add(key, text);
    }
    header.add("__metadata__", texts);
  }
  std::size_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    std::string shape = joined(entry.shape, ",");
    const std::size_t end = offset + entry.bytes.size();
    header.add(entry.name,
               JsonObject{}
                   .add("dtype", entry.dtype)
                   .raw("shape", '[' + shape + ']')
                   .raw("data_offsets", concat('[', offset, ',', end, ']')));
    offset = end;
  }
  std::string text = header.text();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  return text;
}

void check_entries(const std::vector<SafetensorsEntry>& entries) {
  std::set<std::string_view> names{"__metadata__"};
  for (const SafetensorsEntry& entry : entries) {
    const auto size = product(width_of(entry.dtype), entry.shape);
    TROUPE_CHECK(size && static_cast<std::uint64_t>(*size) == entry.bytes.size(),
                 fill_in("[write_safetensors] {} has {} bytes, not those of its dtype and shape",
                         entry.name,
                         entry.bytes.size()));
    TROUPE_CHECK(names.insert(entry.name).second, "[write_safetensors] ", entry.name, " twice");
  }
}

}  // namespace

std::int64_t SafetensorsEntry::elements() const {
  return product(1, shape).value_or(0);
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  const auto unusable = [&](const std::string& what) {
    return data_error("{} is not usable as a safetensors file: {}", path.string(), what);
  };
  auto contents = read_whole(path);
  if (!contents) {
    return unusable(contents.error().message);
  }
  const RawBytes bytes = contents->bytes;
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kHeaderBytesMax || length > bytes.size() - kLengthBytes) {
    return unusable(fill_in("its header would be {} bytes long, where {} are possible",
                            length,
                            std::min(kHeaderBytesMax, bytes.size() - kLengthBytes)));
  }
  const char* const text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  auto header = parse_safetensors_header({text, static_cast<std::size_t>(length)});
  if (!header) {
    return unusable(header.error().message);
  }

  const RawBytes data = bytes.subspan(kLengthBytes + static_cast<std::size_t>(length));
  SafetensorsFile file;
  file.path_ = path;
  file.contents_ = contents->owner;
  file.metadata_ = std::move(header->metadata);
  for (SafetensorsHeader::Tensor& tensor : header->tensors) {
    auto entry = checked(std::move(tensor), data);
    if (!entry) {
      return unusable(entry.error().message);
    }
    file.by_name_.emplace(entry->name, file.entries_.size());
    file.entries_.push_back(*std::move(entry));
  }
  if (!fill_without_gaps(file.entries_, data)) {
    return unusable(concat(
        "its tensors do not fill its ", data.size(), " bytes of data without holes and overlaps"));
  }
  return file;
}

SafetensorsFile SafetensorsFile::of(SafetensorsFile file,
                                    std::vector<SafetensorsEntry> entries,
                                    std::shared_ptr<const void> contents) {
  file.contents_ = std::move(contents);
  file.entries_ = std::move(entries);
  file.by_name_.clear();
  for (std::size_t i = 0; i < file.entries_.size(); ++i) {
    file.by_name_.emplace(file.entries_[i].name, i);
  }
  return file;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &entries_[at->second];
}

bool readable_as_floats(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

std::vector<float> floats_of(const SafetensorsEntry& entry) {
  TROUPE_CHECK(readable_as_floats(entry.dtype), "[floats_of] ", entry.name, " is ", entry.dtype);
  if (entry.dtype == "F16") {
    return widened(entry.bytes, float_of_f16);
  }
  if (entry.dtype == "BF16") {
    return widened(entry.bytes, float_of_bf16);
  }
  std::vector<float> values(entry.bytes.size() / sizeof(float));
  if (!values.empty()) {
    std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  }
  return values;
}

Result<void> write_safetensors(const std::filesystem::path& path,
                               const std::vector<SafetensorsEntry>& entries,
                               const std::map<std::string, std::string>& metadata) {
  check_entries(entries);
  return replace_file(path, [&](OutputFile& file) {
    const std::string header = header_of(entries, metadata);
    const std::uint64_t length = header.size();
    std::array<char, kLengthBytes> number{};
    std::memcpy(number.data(), &length, sizeof length);
    file.write({number.data(), number.size()});
    file.write(header);
    for (const SafetensorsEntry& entry : entries) {
      file.write({reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()});
    }
  });
}

}  // namespace troupe
