#include "runtime/data/number_array.hpp"

#include "runtime/record/json.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <string_view>
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
double number_at(const std::byte* bytes, std::size_t i) {
  T number;
  std::memcpy(&number, bytes + i * sizeof number, sizeof number);
  return static_cast<double>(number);
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
    return npy_error(concat("its format is of version ", version, "; right are 1 to 3"));
  }
  std::size_t length = 0;
  const std::size_t digits = version == 1 ? 2 : 4;
  std::memcpy(&length, file.data() + 8, digits);
  const std::size_t begin = 8 + digits;
  if (length > kNpyHeaderMax || length > file.size() - begin) {
    return npy_error(concat("its header would be ",
                            length,
                            " bytes long, where ",
                            std::min(kNpyHeaderMax, file.size() - begin),
                            " are possible"));
  }
  return std::pair(text.substr(begin, length), begin + length);
}

std::optional<NumberType> type_of_descr(std::string_view descr) {
  constexpr std::array<std::pair<std::string_view, NumberType>, 6> kTypes{
      {{"<f4", NumberType::float32},
       {"<f8", NumberType::float64},
       {"|u1", NumberType::uint8},
       {"<u1", NumberType::uint8},
       {"<i4", NumberType::int32},
       {"<i8", NumberType::int64}}};
  const auto row =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.first == descr; });
  return row == kTypes.end() ? std::nullopt : std::optional(row->second);
}

}  // namespace

std::size_t number_width(NumberType type) {
  switch (type) {
    case NumberType::uint8:
      return 1;
    case NumberType::float32:
    case NumberType::int32:
      return 4;
    default:
      return 8;
  }
}

double NumberArray::operator[](std::size_t i) const {
  switch (type) {
    case NumberType::float32:
      return number_at<float>(bytes.data(), i);
    case NumberType::float64:
      return number_at<double>(bytes.data(), i);
    case NumberType::uint8:
      return number_at<std::uint8_t>(bytes.data(), i);
    case NumberType::int32:
      return number_at<std::int32_t>(bytes.data(), i);
    default:
      return number_at<std::int64_t>(bytes.data(), i);
  }
}

std::string extents_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += concat(i == 0 ? "" : ", ", shape[i]);
  }
  return text + ')';
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
  if (!found) {
    return found.error();
  }
  const auto header = NpyHeaderReader(found->first).read();
  if (!header) {
    return npy_error("its header is not {'descr': ..., 'fortran_order': ..., 'shape': ...}");
  }
  const auto type = type_of_descr(header->descr);
  if (!type) {
    return npy_error(concat("its numbers are of type ",
                            json_string(header->descr.substr(0, 40)),
                            "; right are <f4, <f8, |u1, <i4 and <i8"));
  }
  if (header->columns_first) {
    return npy_error(
        "its elements are stored by columns (fortran_order); write numpy.ascontiguousarray of it");
  }
  if (std::find(header->shape.begin(), header->shape.end(), 0) != header->shape.end()) {
    return npy_error("its shape is " + extents_text(header->shape) + ": it has no samples");
  }
  const auto data = file.subspan(found->second);
  const auto size = counted_bytes(header->shape, number_width(*type));
  if (size != data.size()) {
    return npy_error(concat("its shape is ",
                            extents_text(header->shape),
                            " of ",
                            header->descr,
                            ", which does not make the ",
                            data.size(),
                            " bytes behind its header"));
  }
  return NumberArray{*type, header->shape, data, std::move(owner)};
}

}  // namespace troupe
