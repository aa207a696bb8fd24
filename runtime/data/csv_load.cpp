// How a CSV file comes to be a table: as a whole, or piece by piece.
#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "runtime/data/csv_survey.hpp"
#include "runtime/data/csv_table.hpp"
#include "runtime/data/foreign.hpp"
#include "runtime/data/input_file.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kCsvBytesMax = std::size_t{1} << 30;

}  // namespace

std::vector<std::size_t> WordNumbers::sort() {
  std::vector<std::pair<double, std::string_view>> order;  // the map's own order is that of bytes
  bool all = true;
  for (const auto& [word, number] : numbers_) {
    const auto value = csv_number(word);
    all = all && value;
    order.emplace_back(value.value_or(0), word);
  }
  if (all) {
    std::ranges::stable_sort(order, [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  std::vector<std::size_t> renamed(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::size_t& number = numbers_.find(order[i].second)->second;
    renamed[number] = i;
    number = i;
  }
  return renamed;
}

std::vector<std::string> WordNumbers::words() const {
  std::vector<std::string> words(numbers_.size());
  for (const auto& [word, number] : numbers_) {
    words[number] = utf8_name(word);
  }
  return words;
}

void CsvTable::fill(const std::vector<ColumnScale>& scales) {
  const std::size_t used = targets.empty() ? 1 : cells.size() / targets.size();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    cells[i] = std::isnan(cells[i]) ? scales[i % used].mean : cells[i];
  }
}

/// That it is text, and what stands between two fields.
Result<void> CsvLoader::check_text(std::string_view text, const std::string& path) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  if (std::string form = foreign_form({bytes, text.size()}, path, Wanted::table); !form.empty()) {
    return Error{ErrorKind::data, std::move(form)};
  }
  if (separator_ == '\0') {
    const std::string& asked = options_.separator();
    separator_ = asked.empty()      ? found_separator(text, options_.comment())
                 : asked == "tab"   ? '\t'
                 : asked == "blank" ? ' '
                                    : asked[0];
  }
  return {};
}

CsvReader CsvLoader::reader(std::string_view text) const {
  return {text, separator_, options_.comment()};
}

/// Whether the first line names the columns; by its words where the second one does not tell.
std::optional<bool> CsvLoader::find_header(std::string_view text,
                                           const std::vector<std::string>& first,
                                           const std::vector<std::string>& second) const {
  const auto detected =
      detected_header(options_, {first.begin(), first.end()}, {second.begin(), second.end()});
  if (detected) {
    return detected;
  }
  if (!prepared_) {
    return header_by_words(reader(text), options_);
  }
  const auto& names = prepared_->columns;
  if (names.empty()) {  // nor had what the weights were trained on
    return false;
  }
  const bool known = std::ranges::any_of(
      first, [&](const std::string& name) { return std::ranges::count(names, name) > 0; });
  const bool sample = std::ranges::any_of(
      first, [&](const std::string& field) { return csv_number(field, options_).has_value(); });
  return known || sample ? std::optional(known) : std::nullopt;
}

/// What would make the whole table usable, behind what is wrong with one field of it.
Error CsvLoader::explained(Error error, std::string_view text) const {
  const auto settings = csv_settings(reader(text), options_, columns_, separator_);
  if (settings && !settings->empty()) {
    error.message += "; as it is, the table can be read with " + *settings;
  } else if (!settings && settings.error().message != error.message) {
    error.message += "; and " + settings.error().message;
  }
  return error;
}

namespace {

constexpr const char* kHalfNumber = "it is text in UTF-16 and ends within a character";

/// UTF-8 of a file whose first two bytes say that it is UTF-16, piece by piece; others stay as they are.
class Utf16 {
 public:
  /// Changes the next piece of the file. Half a pair becomes U+FFFD. False: the last piece ends with half a number.
  bool decode(Bytes& bytes, bool last) {
    bytes.insert(bytes.begin(), rest_.begin(), rest_.end());
    rest_.clear();
    std::size_t i = 0;
    if (!begun_) {
      if (bytes.size() < 2 && !last) {
        rest_.swap(bytes);
        return true;
      }
      begun_ = true;
      marked_ = bytes.size() >= 2 && (bytes[0] ^ bytes[1]) == 1 && (bytes[0] & bytes[1]) == 0xfe;
      high_ = marked_ && bytes[0] == 0xff ? 1 : 0;
      i = 2;
    }
    if (!marked_) {
      return true;
    }
    const auto unit = [&](std::size_t at) -> std::uint32_t {
      return at + 1 < bytes.size() ? bytes[at + high_] << 8 | bytes[at + 1 - high_] : 0;
    };
    Bytes text;
    for (; i + 1 < bytes.size(); i += 2) {
      std::uint32_t point = unit(i);
      const bool first = point >> 10 == 0xd800 >> 10;
      if (first && i + 3 >= bytes.size() && !last) {
        break;
      }
      if (point >> 11 == 0xd800 >> 11) {
        const bool pair = first && unit(i + 2) >> 10 == 0xdc00 >> 10;
        point = pair ? 0x10000 + ((point - 0xd800) << 10) + (unit(i + 2) - 0xdc00) : 0xfffd;
        i += pair ? 2 : 0;
      }
      const int more = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
      constexpr std::uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
      text.push_back(static_cast<std::uint8_t>(kFirst[more] | point >> (6 * more)));
      for (int byte = more; byte-- > 0;) {
        text.push_back(static_cast<std::uint8_t>(0x80 | (point >> (6 * byte) & 0x3f)));
      }
    }
    rest_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(i), bytes.end());
    bytes = std::move(text);
    return !last || rest_.empty();
  }

 private:
  Bytes rest_;  // of the piece before
  bool begun_ = false;
  bool marked_ = false;
  std::size_t high_ = 0;  // place of a number's upper byte
};

/// Where the last row ends that is whole: behind a line's end that stands in no quotes. 0: nowhere.
std::size_t end_of_rows(std::string_view text) {
  std::size_t end = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    // As in 3.5" a quote behind a letter or digit opens nothing.
    const bool literal =
        !quoted && i > 0 && std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0;
    quoted = quoted != (text[i] == '"' && !literal);
    end = text[i] == '\n' && !quoted ? i + 1 : end;
  }
  return end;
}

}  // namespace

Result<void> CsvLoader::walk(const std::string& path,
                             std::size_t block,
                             const std::function<Result<void>(CsvTable&)>& take) {
  const auto unusable = [&](const std::string& what) {
    return Error{ErrorKind::data, concat(path, " is not usable: ", what)};
  };
  const auto& categories = options_.categories();
  if (std::find(categories.begin(), categories.end(), "auto") != categories.end()) {
    return Error{ErrorKind::usage,
                 "data.csv.categories: auto is not for a table that is read piece by piece; name "
                 "the columns"};
  }
  InputFile file(path);
  Utf16 utf16;
  Bytes bytes;
  std::optional<CsvReader> reader;
  for (bool more = true; more;) {
    Bytes piece;
    if (!file.read(block, piece)) {
      return unusable(file.error());
    }
    more = piece.size() == block;
    if (!utf16.decode(piece, !more)) {
      return unusable(kHalfNumber);
    }
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t whole = more ? end_of_rows(all) : all.size();
    const std::string_view text = all.substr(0, whole);
    if (more && (whole == 0 || (!reader && std::count(text.begin(), text.end(), '\n') < 2))) {
      if (bytes.size() > kCsvBytesMax) {
        return unusable(concat("it has ", bytes.size(), " bytes without the end of a line"));
      }
      continue;  // the columns are learnt from two lines
    }
    const bool first = !reader;
    const bool known = !columns_.uses.empty();
    Result<void> read;
    if (first) {
      read = check_text(text, path);
      read = read && !known ? learn_columns(text) : read;
      reader.emplace(this->reader(text));
    } else {
      reader->go_on(text);
    }
    CsvTable table;
    read = read ? read_rows(*reader, first && columns_.header, table) : read;
    if (!read) {
      return read.error().kind == ErrorKind::data ? unusable(read.error().message) : read.error();
    }
    TROUPE_TRY(take(table));
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(whole));
  }
  return {};
}

namespace {

/// A table is kept in memory, so one that is too large is told before it is read.
Result<void> check_csv_size(const std::string& path) {
  std::error_code code;
  const std::uintmax_t bytes = std::filesystem::file_size(path, code);
  if (!code && bytes > kCsvBytesMax) {
    return data_error(
        "{} is not usable: it has {} bytes, and a table, which is kept in memory, may have {} (1 "
        "GiB)",
        path,
        bytes,
        kCsvBytesMax);
  }
  return {};
}

}  // namespace

Result<CsvTable> CsvLoader::read(const std::string& path) {
  TROUPE_TRY(check_csv_size(path));
  auto bytes = read_input_file(path, kCsvBytesMax);
  TROUPE_TRY(bytes);
  const auto unusable = [&](const std::string& what) {
    return Error{ErrorKind::data, concat(path, " is not usable: ", what)};
  };
  if (!Utf16().decode(*bytes, true)) {
    return unusable(kHalfNumber);
  }
  CsvTable table;
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  auto read = check_text(text, path);
  read = read ? read_rows(text, table) : read;
  if (!read) {
    return read.error().kind == ErrorKind::data ? unusable(read.error().message) : read.error();
  }
  if (table.cells.empty()) {
    return unusable("it holds no sample, or no column beside the target");
  }
  const bool alone = table.rows() == 1 && options_.test_path().empty();  // is told as such
  if (!learnt_ && classes() == 1 && !alone) {
    const Error one{ErrorKind::data,
                    "all of its samples are of one class; data.csv.target names the column to "
                    "predict"};
    return unusable(explained(one, text).message);
  }
  if (!learnt_) {
    learn_words(table);
  }
  return table;
}

}  // namespace troupe
