// How a CSV file comes to be a table: as a whole, or piece by piece.
#include "experiment/data.pb.h"
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

/// Means take the place of what is missing: those of the training samples.
void CsvLoader::fill(CsvTable& table) {
  std::vector<double> means;
  for (std::size_t column = 0; column < words_.size(); ++column) {
    if (is_used(column)) {
      const auto& [sum, count] = sums_[column];
      const std::size_t at = means.size();
      means.push_back(prepared_    ? at < prepared_->x.size() ? prepared_->x[at].mean : 0
                      : count == 0 ? 0
                                   : sum / count);
    }
  }
  means.resize(means.size() + marks());
  for (std::size_t i = 0; i < table.cells.size(); ++i) {
    if (std::isnan(table.cells[i])) {
      table.cells[i] = means[i % means.size()];
      ++filled_;
    }
  }
}

/// That it is text, and what stands between two fields.
Result<void> CsvLoader::check_text(std::string_view text, const std::string& path) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  if (std::string form = foreign_form({bytes, text.size()}, path, Wanted::table); !form.empty()) {
    return Error{ErrorKind::data, std::move(form)};
  }
  if (const std::size_t at = text.find('\0'); at != text.npos) {
    const std::string_view before = text.substr(0, at);
    return Error{ErrorKind::data,
                 concat("line ",
                        1 + std::count(before.begin(), before.end(), '\n'),
                        " has a byte of 0, which no text has")};
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

/// What would make the whole table usable, behind what is wrong with one field of it.
Error CsvLoader::explained(Error error, std::string_view text) const {
  const std::string settings = csv_settings(reader(text), options_, columns_, separator_);
  if (!settings.empty()) {
    error.message += "; as it is, the table can be read with " + settings;
  }
  return error;
}

namespace {

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
                             const std::function<Result<void>(const CsvTable&)>& take) {
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
  Bytes bytes;
  std::optional<CsvReader> reader;
  for (bool more = true; more;) {
    const std::size_t before = bytes.size();
    if (!file.read(block, bytes)) {
      return unusable(file.error());
    }
    more = bytes.size() == before + block;
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
    if (auto taken = take(table); !taken) {
      return taken;
    }
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
    return Error{ErrorKind::data,
                 concat(path,
                        " is not usable: it has ",
                        bytes,
                        " bytes, and a table, which is kept in memory, may have ",
                        kCsvBytesMax,
                        " (1 GiB)")};
  }
  return {};
}

/// Text in UTF-16, as its first two bytes say, in UTF-8; half a pair as U+FFFD.
void take_utf16(Bytes& bytes) {
  if (bytes.size() < 2 || (bytes[0] ^ bytes[1]) != 1 || (bytes[0] & bytes[1]) != 0xfe) {
    return;
  }
  const std::size_t high = bytes[0] == 0xfe ? 0 : 1;
  const auto unit = [&](std::size_t i) -> std::uint32_t {
    return i + 1 < bytes.size() ? bytes[i + high] << 8 | bytes[i + 1 - high] : 0;
  };
  Bytes text;
  for (std::size_t i = 2; i + 1 < bytes.size(); i += 2) {
    std::uint32_t point = unit(i);
    if (point >> 11 == 0xd800 >> 11) {
      const bool pair = point < 0xdc00 && unit(i + 2) >> 10 == 0xdc00 >> 10;
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
  bytes = std::move(text);
}

}  // namespace

Result<CsvTable> CsvLoader::read(const std::string& path) {
  if (auto fits = check_csv_size(path); !fits) {
    return fits.error();
  }
  auto bytes = read_input_file(path, kCsvBytesMax);
  if (!bytes) {
    return bytes.error();
  }
  take_utf16(*bytes);
  CsvTable table;
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const auto unusable = [&](const std::string& what) {
    return Error{ErrorKind::data, concat(path, " is not usable: ", what)};
  };
  auto read = check_text(text, path);
  read = read ? read_rows(text, table) : read;
  if (!read) {
    return read.error().kind == ErrorKind::data ? unusable(read.error().message) : read.error();
  }
  if (table.cells.empty()) {
    return unusable("it holds no sample, or no column beside the target");
  }
  if (!learnt_) {
    learn_words(table);
    fill(table);
  }
  return table;
}

}  // namespace troupe
