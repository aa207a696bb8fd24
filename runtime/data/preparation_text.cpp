#include "runtime/data/preparation_text.hpp"

#include "checkpoint.pb.h"
#include "kernels/wording.hpp"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace troupe {
namespace {

template <class Numbers>
void add_scales(const std::vector<ColumnScale>& scales, Numbers* means, Numbers* factors) {
  for (const ColumnScale& scale : scales) {
    means->Add(scale.mean);
    factors->Add(scale.factor);
  }
}

/// False where the numbers are no scales.
template <class Numbers>
bool take_scales(const Numbers& means, const Numbers& factors, std::vector<ColumnScale>& scales) {
  const auto finite = [](double number) {
    return std::isfinite(number);
  };
  if (means.size() != factors.size() || !std::all_of(means.begin(), means.end(), finite) ||
      !std::all_of(factors.begin(), factors.end(), finite) ||
      std::find(factors.begin(), factors.end(), 0.0) != factors.end()) {
    return false;
  }
  for (int i = 0; i < means.size(); ++i) {
    scales.push_back({means.Get(i), factors.Get(i)});
  }
  return true;
}

/// Each of another class or word, by its place.
template <class Names>
bool are_names(const Names& names) {
  const std::set<std::string_view> different(names.begin(), names.end());
  return different.size() == static_cast<std::size_t>(names.size()) &&
         different.size() <= kClassesMax;
}

}  // namespace

std::string preparation_text(const Preparation& preparation) {
  proto::TrainingData data;
  data.mutable_classes()->Assign(preparation.classes.begin(), preparation.classes.end());
  add_scales(preparation.x, data.mutable_x_mean(), data.mutable_x_factor());
  add_scales(preparation.y, data.mutable_y_mean(), data.mutable_y_factor());
  for (const auto& words : preparation.words) {
    data.add_words()->mutable_word()->Assign(words.begin(), words.end());
  }
  data.mutable_columns()->Assign(preparation.columns.begin(), preparation.columns.end());
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(data, &text, options);
  TROUPE_CHECK(status.ok(), "[preparation_text] ", status.ToString());
  return text;
}

Result<Preparation> parse_preparation(std::string_view text) {
  proto::TrainingData data;
  const auto status = google::protobuf::util::JsonStringToMessage(std::string(text), &data);
  Preparation made;
  if (!status.ok() || !take_scales(data.x_mean(), data.x_factor(), made.x) ||
      !take_scales(data.y_mean(), data.y_factor(), made.y) || !are_names(data.classes()) ||
      !(data.columns().empty() || data.columns().size() == data.words().size()) ||
      !std::ranges::all_of(data.words(),
                           [](const auto& words) { return are_names(words.word()); })) {
    return data_error("its metadata {} does not tell what data was trained on", kPreparationKey);
  }
  made.classes.assign(data.classes().begin(), data.classes().end());
  for (const auto& words : data.words()) {
    made.words.emplace_back(words.word().begin(), words.word().end());
  }
  made.columns.assign(data.columns().begin(), data.columns().end());
  return made;
}

}  // namespace troupe
