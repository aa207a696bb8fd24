#include "runtime/data/preparation.hpp"

#include "kernels/random.hpp"
#include "kernels/result.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace troupe {

std::vector<std::int64_t> all_rows(std::int64_t rows) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

HeldOut hold_out(std::int64_t rows, double share, std::uint64_t seed) {
  // Fisher & Yates, as far as the test samples go.
  const RandomStream random(seed, Purpose::dataset, name_key("held out", 8));
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  const auto asked = std::llround(static_cast<double>(rows) * share);
  const std::int64_t most = std::max<std::int64_t>(0, rows - 1);
  const std::int64_t tests = std::clamp<std::int64_t>(asked, std::min<std::int64_t>(1, most), most);
  for (std::int64_t i = 0; i < tests; ++i) {
    const auto left = static_cast<std::uint64_t>(rows - i);
    const auto drawn =
        i + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(i), left));
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(drawn)]);
  }
  HeldOut parts;
  parts.test.assign(order.begin(), order.begin() + tests);
  parts.train.assign(order.begin() + tests, order.end());
  std::sort(parts.test.begin(), parts.test.end());
  std::sort(parts.train.begin(), parts.train.end());
  return parts;
}

namespace {

/// RFC 3629, table of section 4.
bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) {
      return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
    };
    const unsigned first = byte(0);
    const std::size_t more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if ((first >= 0x80 && first < 0xc2) || first > 0xf4 ||
        (more > 0 && (byte(1) < low || byte(1) > high))) {
      return false;
    }
    for (std::size_t i = 2; i <= more; ++i) {
      if (byte(i) < 0x80 || byte(i) > 0xbf) {
        return false;
      }
    }
    at += 1 + more;
  }
  return true;
}

}  // namespace

std::string utf8_name(std::string_view name) {
  if (is_utf8(name)) {
    return std::string(name);
  }
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | byte >> 6);
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
}

std::vector<ColumnScale> ColumnMoments::scales() const {
  std::vector<ColumnScale> scales;
  for (const Column& c : columns_) {
    scales.push_back({c.mean, c.squares > 0 ? std::sqrt(c.count / c.squares) : 1});
  }
  return scales;
}

std::string split_told(const HeldOut& rows, const std::string& test_path) {
  return fill_in("{} samples for training and {} for tests, {}",
                 rows.train.size(),
                 rows.test.size(),
                 test_path.empty() ? "drawn by seed" : "of " + test_path);
}

std::string classes_told(const std::vector<std::string>& names,
                         const std::vector<std::int64_t>& counts) {
  constexpr std::size_t kClassesSaid = 12;
  std::string text = concat(names.size(), names.size() == 1 ? " class:" : " classes:");
  for (std::size_t i = 0; i < std::min(names.size(), kClassesSaid); ++i) {
    text += concat(i == 0 ? " " : ", ", names[i], " (", counts[i], ")");
  }
  return text + (names.size() > kClassesSaid ? ", ..." : "");
}

bool are_values(std::int64_t different, std::int64_t rows) {
  return different > 10 && (different > 50 || 10 * different > rows);
}

std::string values_doubted(std::int64_t different, std::int64_t rows, const char* kind) {
  return fill_in(
      "the target has {} different whole numbers in {} rows, and each is a class of its own; to "
      "predict it as a number: --set data.{}.values=true",
      different,
      rows,
      kind);
}

void tell_labels(const std::vector<std::int32_t>& train,
                 const std::vector<std::int32_t>& test,
                 Preparation& to) {
  std::vector<std::int64_t> counts(to.classes.size());
  for (const auto* labels : {&train, &test}) {
    for (const std::int32_t label : *labels) {
      ++counts[static_cast<std::size_t>(label)];
    }
  }
  to.understood.push_back(classes_told(to.classes, counts));
  to.constant = constant_accuracy(train, test);
  const std::int64_t rows = std::ssize(train) + std::ssize(test);
  const std::int64_t nowhere = std::ranges::count(counts, 0);
  const std::int64_t there = std::ssize(counts) - nowhere;
  // Many labels are no sign of numbers where each has its samples, as those of photographs do.
  if (are_values(there, rows) && (nowhere > 0 || 10 * there > rows)) {
    to.doubts.push_back(values_doubted(there, rows, "arrays"));
  } else if (nowhere > 0) {
    to.doubts.push_back(fill_in("{} of the labels 0 to {} {} {}",
                                nowhere,
                                counts.size() - 1,
                                nowhere == 1 ? "is of no sample:" : "are of no sample, such as",
                                std::ranges::find(counts, 0) - counts.begin()));
  }
}

double constant_accuracy(const std::vector<std::int32_t>& train,
                         const std::vector<std::int32_t>& test) {
  std::map<std::int32_t, std::int64_t> counts;
  for (const std::int32_t label : train) {
    ++counts[label];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      });
  return most == counts.end() || test.empty()
             ? 0
             : static_cast<double>(std::count(test.begin(), test.end(), most->first)) /
                   static_cast<double>(test.size());
}

double constant_loss(const std::vector<float>& train,
                     const std::vector<float>& test,
                     std::size_t values) {
  double sum = 0;
  for (std::size_t v = 0; v < values; ++v) {
    double mean = 0;
    for (std::size_t i = v; i < train.size(); i += values) {
      mean += train[i] / (static_cast<double>(train.size()) / static_cast<double>(values));
    }
    for (std::size_t i = v; i < test.size(); i += values) {
      sum += (test[i] - mean) * (test[i] - mean);
    }
  }
  return test.empty() ? 0
                      : sum / 2 * static_cast<double>(values) / static_cast<double>(test.size());
}

}  // namespace troupe
