#include "runtime/data/number_array.hpp"

#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace troupe {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kNpyHeaderMax = 65536;  // NumPy's own are of 128 bytes
constexpr std::size_t kNpyDimensionsMax = 32;

struct NpyHeader {
  std::string descr;
  bool columns_first = false;
  std::vector<std::int64_t> shape;
};

template <class T>
double number_at(const std::byte* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof number);
  return static_cast<double>(number);
}

/// IEEE 754 binary16: a sign, 5 bits of exponent with a bias of 15, 10 bits of fraction.
double half_at(const std::byte* bytes) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction == 0 ? std::numeric_limits<double>::infinity()
                                                       : std::numeric_limits<double>::quiet_NaN())
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

/// The upper half of a float32.
double bfloat16_at(const std::byte* bytes) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

constexpr std::array kNumberTypes{
    NumberType{"f4", "F32", 4, false, number_at<float>},
    NumberType{"f8", "F64", 8, false, number_at<double>},
    NumberType{"f2", "F16", 2, false, half_at},
    NumberType{"V2", "BF16", 2, false, bfloat16_at},  // as NumPy writes ml_dtypes.bfloat16
    NumberType{"u1", "U8", 1, true, number_at<std::uint8_t>},
    NumberType{"b1", "BOOL", 1, true, number_at<std::uint8_t>},
    NumberType{"i1", "I8", 1, true, number_at<std::int8_t>},
    NumberType{"i2", "I16", 2, true, number_at<std::int16_t>},
    NumberType{"u2", "U16", 2, true, number_at<std::uint16_t>},
    NumberType{"i4", "I32", 4, true, number_at<std::int32_t>},
    NumberType{"u4", "U32", 4, true, number_at<std::uint32_t>},
    NumberType{"i8", "I64", 8, true, number_at<std::int64_t>},
    NumberType{"u8", "U64", 8, true, number_at<std::uint64_t>}};

const NumberType* number_type(std::string_view NumberType::*name, std::string_view wanted) {
  const auto row =
      std::ranges::find_if(kNumberTypes, [&](const auto& type) { return type.*name == wanted; });
  return row == kNumberTypes.end() ? nullptr : &*row;
}

/// Those of a row-major array.
std::vector<std::size_t> row_major(const std::vector<std::int64_t>& shape) {
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * static_cast<std::size_t>(shape[i]);
  }
  return strides;
}

/// Reads the one shape of a Python dictionary that the format has.
class NpyHeaderReader {
 public:
  explicit NpyHeaderReader(std::string_view text) : rest_(text) {}

  /// No value where the text is anything else.
  std::optional<NpyHeader> read() {
    NpyHeader header;
    bool good = take("{");
    for (int member = 0; good && member < 3; ++member) {
      good = read_member(header) && (take(",") || member == 2);
    }
    good = good && take("}") && (skip_blanks(), rest_.empty()) && seen_ == 7;
    return good ? std::optional(std::move(header)) : std::nullopt;
  }

 private:
  bool read_member(NpyHeader& header) {
    const auto key = text();
    if (!key || !take(":")) {
      return false;
    }
    if (*key == "descr") {
      const auto value = text();
      header.descr = value.value_or("");
      return value && once(1);
    }
    if (*key == "fortran_order") {
      header.columns_first = take("True");
      return (header.columns_first || take("False")) && once(2);
    }
    return *key == "shape" && read_shape(header.shape) && once(4);
  }

  bool read_shape(std::vector<std::int64_t>& shape) {
    if (!take("(")) {
      return false;
    }
    while (!take(")")) {
      std::int64_t extent = 0;
      skip_blanks();
      const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (code != std::errc{} || extent < 0 || shape.size() == kNpyDimensionsMax) {
        return false;
      }
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      shape.push_back(extent);
      if (!take(",") && !rest_.starts_with(")")) {
        return false;
      }
    }
    return true;
  }

  std::optional<std::string> text() {
    skip_blanks();
    const char quote = rest_.empty() ? '\0' : rest_[0];
    const std::size_t end = rest_.find(quote, 1);
    if ((quote != '\'' && quote != '"') || end == rest_.npos) {
      return std::nullopt;
    }
    const std::string found(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return found;
  }

  bool take(std::string_view token) {
    skip_blanks();
    const bool there = rest_.starts_with(token);
    rest_.remove_prefix(there ? token.size() : 0);
    return there;
  }

  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size()));
  }

  bool once(int bit) {
    const bool first = (seen_ & bit) == 0;
    seen_ |= bit;
    return first;
  }

  std::string_view rest_;
  int seen_ = 0;  // a bit a member
};

Error npy_error(std::string what) {
  return {ErrorKind::data, std::move(what)};
}

/// The header's text, and how many bytes of the file are before the elements.
Result<std::pair<std::string_view, std::size_t>> npy_header(std::span<const std::byte> file) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic) || file.size() < 12) {
    return npy_error("it is no .npy file: it does not begin with \\x93NUMPY");
  }
  const int version = std::to_integer<int>(file[6]);
  if (version < 1 || version > 3) {
    return npy_error(concat("its format is of version ", version, "; expected 1 to 3"));
  }
  std::size_t length = 0;
  const std::size_t digits = version == 1 ? 2 : 4;
  std::memcpy(&length, file.data() + 8, digits);
  const std::size_t begin = 8 + digits;
  if (length > kNpyHeaderMax || length > file.size() - begin) {
    return npy_error(fill_in("its header would be {} bytes long, where {} are possible",
                             length,
                             std::min(kNpyHeaderMax, file.size() - begin)));
  }
  return std::pair(text.substr(begin, length), begin + length);
}

}  // namespace

const NumberType* number_type_of_npy(std::string_view name) {
  return number_type(&NumberType::npy, name);
}

const NumberType* number_type_of_safetensors(std::string_view name) {
  return number_type(&NumberType::safetensors, name);
}

double NumberArray::operator[](std::size_t i) const {
  if (!strides.empty()) {
    std::size_t at = 0;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const auto extent = static_cast<std::size_t>(shape[d]);
      at += i % extent * strides[d];
      i /= extent;
    }
    i = at;
  }
  const std::byte* const element = bytes.data() + i * type->width;
  if (!swapped) {
    return type->read(element);
  }
  std::array<std::byte, 8> turned;
  std::reverse_copy(element, element + type->width, turned.begin());
  return type->read(turned.data());
}

NumberArray NumberArray::channels_last() const {
  NumberArray other = *this;
  if (other.strides.empty()) {
    other.strides = row_major(shape);
  }
  std::rotate(other.shape.begin() + 1, other.shape.begin() + 2, other.shape.end());
  std::rotate(other.strides.begin() + 1, other.strides.begin() + 2, other.strides.end());
  return other;
}

NumberArray zeros(std::int64_t rows, std::size_t width) {
  const auto bytes =
      std::make_shared<const std::vector<std::uint8_t>>(static_cast<std::size_t>(rows) * width);
  return {.type = number_type_of_npy("u1"),
          .shape = {rows, static_cast<std::int64_t>(width)},
          .bytes = std::as_bytes(std::span(*bytes)),
          .owner = bytes};
}

std::string extents_text(const std::vector<std::int64_t>& shape) {
  return '(' + joined(shape, ", ") + ')';
}

std::optional<std::size_t> counted_bytes(const std::vector<std::int64_t>& shape,
                                         std::size_t width) {
  for (const std::int64_t extent : shape) {
    if (extent < 1 || __builtin_mul_overflow(width, static_cast<std::size_t>(extent), &width)) {
      return std::nullopt;
    }
  }
  return width;
}

Result<NumberArray> parse_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner) {
  const auto found = npy_header(file);
  TROUPE_TRY(found);
  const auto header = NpyHeaderReader(found->first).read();
  if (!header) {
    return npy_error("its header is not {'descr': ..., 'fortran_order': ..., 'shape': ...}");
  }
  const std::string_view descr = header->descr;
  const NumberType* const type =
      !descr.empty() && (descr[0] == '<' || descr[0] == '>' || descr[0] == '|')
          ? number_type_of_npy(descr.substr(1))
          : nullptr;
  if (type == nullptr) {
    return npy_error(concat("its numbers are of type ",
                            json_string(header->descr.substr(0, 40)),
                            descr.find('U') != descr.npos || descr.find('S') != descr.npos
                                ? "; numpy.unique(a, return_inverse=True)[1] makes labels of texts"
                                : "; write a.astype(\"float32\") of it, or \"int64\" of labels"));
  }
  if (std::find(header->shape.begin(), header->shape.end(), 0) != header->shape.end()) {
    return npy_error("its shape is " + extents_text(header->shape) + ": it has no samples");
  }
  const auto data = file.subspan(found->second);
  const auto size = counted_bytes(header->shape, type->width);
  if (size != data.size()) {
    return npy_error(
        fill_in("its shape is {} of {}, which does not make the {} bytes behind its header",
                extents_text(header->shape),
                header->descr,
                data.size()));
  }
  NumberArray array{.type = type, .shape = header->shape, .bytes = data, .owner = std::move(owner)};
  array.swapped = descr[0] == '>';
  if (header->columns_first) {
    std::vector<std::int64_t> turned(array.shape.rbegin(), array.shape.rend());
    array.strides = row_major(turned);
    std::reverse(array.strides.begin(), array.strides.end());
  }
  return array;
}

}  // namespace troupe
