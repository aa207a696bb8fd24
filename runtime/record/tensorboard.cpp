#include "runtime/record/tensorboard.hpp"

#include "messages/experiment.hpp"
#include "runtime/record/json_reader.hpp"
#include "tensorboard.pb.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fstream>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

// By slices of eight bytes: a table for each.
constexpr auto kCrcTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0U);
    }
    tables[0][byte] = crc;
  }
  for (std::size_t slice = 1; slice < tables.size(); ++slice) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[slice - 1][byte];
      tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}();

/// Little endian, wherever it runs.
template <class T>
std::string bytes_of(T number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<char>(number >> (8 * i)));
  }
  return bytes;
}

/// "shard-0", "server-1.0": what a line is about, which belongs into its tag.
bool is_name(const std::string& word) {
  const std::size_t dash = word.rfind('-');
  return dash != word.npos && dash + 1 < word.size() &&
         word.find_first_not_of("0123456789.", dash + 1) == word.npos &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.';
         });
}

tensorboard::Summary::Value& value_of(tensorboard::Event& event, const std::string& tag) {
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  return value;
}

/// Shown as it is, in letters of one width.
void add_text(tensorboard::Event& event, const std::string& tag, std::string_view text) {
  tensorboard::Summary::Value& value = value_of(event, tag);
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  value.mutable_tensor()->set_dtype(tensorboard::TensorProto::DT_STRING);
  value.mutable_tensor()->add_string_val("```\n" + std::string(text) + "\n```");
}

void add_plugin_data(tensorboard::Event& event,
                     const char* tag,
                     const tensorboard::HParamsPluginData& data) {
  auto& plugin = *value_of(event, tag).mutable_metadata()->mutable_plugin_data();
  plugin.set_plugin_name("hparams");
  plugin.set_content(data.SerializeAsString());
}

void count(tensorboard::HistogramProto& histogram, double value, double times) {
  histogram.set_num(histogram.num() + times);
  histogram.set_sum(histogram.sum() + times * value);
  histogram.set_sum_squares(histogram.sum_squares() + times * value * value);
}

/// A bucket for each value that was seen, as wide as a version.
void fill(tensorboard::HistogramProto& histogram, const Histogram& counts) {
  constexpr double kHalf = 0.5;
  histogram.set_min(static_cast<double>(counts.begin()->first));
  histogram.set_max(static_cast<double>(counts.rbegin()->first));
  for (const auto& [value, times] : counts) {
    const auto middle = static_cast<double>(value);
    const int buckets = histogram.bucket_size();
    if (buckets > 0 && histogram.bucket_limit(buckets - 1) < middle - kHalf) {
      histogram.add_bucket_limit(middle - kHalf);  // nothing lies between
      histogram.add_bucket(0);
    }
    histogram.add_bucket_limit(middle + kHalf);
    histogram.add_bucket(static_cast<double>(times));
    count(histogram, middle, static_cast<double>(times));
  }
}

/// Buckets of equal width from the least to the greatest.
void fill(tensorboard::HistogramProto& histogram, const std::vector<double>& values) {
  constexpr int kBuckets = 30;
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  const double width = (*greatest - *least) / kBuckets;
  histogram.set_min(*least);
  histogram.set_max(*greatest);
  const int buckets = width > 0 ? kBuckets : 1;
  for (int i = 1; i <= buckets; ++i) {
    histogram.add_bucket_limit(i == buckets ? *greatest : *least + i * width);
    histogram.add_bucket(0);
  }
  for (const double value : values) {
    const int at = width > 0 ? static_cast<int>((value - *least) / width) : 0;
    double& bucket = histogram.mutable_bucket()->at(std::min(at, buckets - 1));
    bucket += 1;
    count(histogram, value, 1);
  }
}

/// What has come to `before`.
Histogram difference(Histogram now, const Histogram& before) {
  for (const auto& [value, times] : before) {
    auto& left = now[value];
    left -= times;
    if (left == 0) {
      now.erase(value);
    }
  }
  return now;
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  const auto at = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i]));
  };
  std::uint32_t crc = 0xffffffffU;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    crc ^= at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24;
    const auto& t = kCrcTables;
    crc = t[7][crc & 0xff] ^ t[6][(crc >> 8) & 0xff] ^ t[5][(crc >> 16) & 0xff] ^ t[4][crc >> 24] ^
          t[3][at(4)] ^ t[2][at(5)] ^ t[1][at(6)] ^ t[0][at(7)];
  }
  for (; !bytes.empty(); bytes.remove_prefix(1)) {
    crc = kCrcTables[0][(crc ^ at(0)) & 0xff] ^ (crc >> 8);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

Result<std::unique_ptr<TensorBoard>> TensorBoard::open(const fs::path& folder,
                                                       const proto::Experiment& experiment,
                                                       const Config& config) {
  std::error_code code;
  fs::create_directories(folder, code);  // where it cannot, the file cannot be made, and says why
  // They are read in the order of their names, in which others have the time; "tfevents" is what they are found by.
  const auto path = [&](int number) {
    const std::string digits = std::to_string(number);
    return folder / concat("events.out.tfevents.", std::string(10 - digits.size(), '0'), digits);
  };
  int number = 1;
  while (config.resumed && fs::exists(path(number), code)) {
    ++number;
  }
  auto file = OutputFile::create(path(number));
  TROUPE_TRY(file);
  std::unique_ptr<TensorBoard> board(new TensorBoard(*std::move(file), config.virtual_clock));
  if (config.resumed) {
    board->go_on(*config.resumed, config.metrics);
  } else {
    board->begin(experiment);
  }
  return board;
}

TensorBoard::TensorBoard(std::unique_ptr<OutputFile> file, bool virtual_clock)
    : file_(std::move(file)), virtual_clock_(virtual_clock) {
  tensorboard::Event version;
  version.set_file_version("brain.Event:2");
  write(version);
}

double TensorBoard::now() const {
  const std::chrono::duration<double> wall = std::chrono::system_clock::now().time_since_epoch();
  return virtual_clock_ ? seconds_ : wall.count();
}

/// What stands in the older files of `step` and later may be older than the checkpoint, or newer.
void TensorBoard::go_on(std::int64_t step, const fs::path& metrics) {
  tensorboard::Event start;
  start.set_step(step);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  write(start);
  constexpr std::streamoff kTail = 1 << 20;  // the last steps are at its end
  std::ifstream in(metrics, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : 0;
  in.seekg(std::max<std::streamoff>(0, size - kTail));
  for (std::string text; std::getline(in, text);) {
    if (Json::parse(text)["step"].number() >= static_cast<double>(step)) {
      line(text);
    }
  }
  step_ = histograms_at_ = step;
}

void TensorBoard::begin(const proto::Experiment& experiment) {
  tensorboard::Event about;
  about.set_step(0);
  add_text(about, "experiment", print_experiment(experiment));
  tensorboard::HParamsPluginData data;
  data.set_version(0);
  tensorboard::SessionStartInfo& info = *data.mutable_session_start_info();
  info.set_start_time_secs(now());
  const auto add = [&](std::string key) -> tensorboard::SessionStartInfo::Value& {
    std::replace(key.begin(), key.end(), '/', '.');  // as --set takes it
    auto& entry = *info.add_hparams();
    entry.set_key(key);
    return *entry.mutable_value();
  };
  const auto counts = [](const std::string& key) {
    return !key.starts_with("record/") && !key.starts_with("resumed/");
  };
  const std::string json = print_experiment_json(experiment);
  for (const auto& [key, value] : Json::parse(json).leaves()) {
    if (const double number = value.number(); counts(key) && !std::isnan(number)) {
      add(key).set_number_value(number);
    } else if (counts(key)) {
      add(key).set_string_value(value.is_list() ? std::string(value.text()) : value.words());
    }
  }
  add_plugin_data(about, "_hparams_/session_start_info", data);
  write(about);
}

void TensorBoard::line(std::string_view line) {
  if (line.starts_with(R"({"kind":"versions")") || line.starts_with(R"({"kind":"header")")) {
    return;
  }
  const Json of = Json::parse(line);
  const auto members = of.leaves();
  const double step = of["step"].number();
  seconds_ = std::fmax(seconds_, of["seconds"].number());
  step_ = std::isnan(step) ? step_ : static_cast<std::int64_t>(step);
  std::string tag;
  bool is_text = std::isnan(step);
  for (const auto& [name, value] : members) {
    if (const std::string word = value.words(); name == "kind" || is_name(word)) {
      tag += (tag.empty() ? "" : "/") + word;
    } else {
      is_text = is_text || value.is_text() || value.is_list();
    }
  }
  if (const double replica = of["replica"].number(); !std::isnan(replica) && !is_text) {
    tag += concat("/replica-", replica);
  }
  tensorboard::Event event;
  if (is_text) {
    add_text(event, tag, line);
  }
  for (const auto& [name, value] : members) {
    const double number = value.number();
    if (!is_text && !std::isnan(number) && name != "step" && name != "replica") {
      value_of(event, tag + '/' + name).set_simple_value(static_cast<float>(number));
    }
  }
  write(event);
  const std::string shard = of["shard"].words();
  if (const double gap = of["gap"].number(); !std::isnan(gap) && !shard.empty()) {
    gaps_[shard].push_back(gap);
  }
  // At most some hundreds in a run, however long it is.
  constexpr std::int64_t kShare = 50;
  if (tag == "evaluation") {
    flush();  // who looks for it finds it, however long the next line takes
  }
  if (tag == "train" && step_ - histograms_at_ >= (step_ + kShare - 1) / kShare) {
    histograms();
  }
}

void TensorBoard::histograms() {
  tensorboard::Event event;
  std::vector<Histogram> now = staleness ? staleness() : std::vector<Histogram>();
  told_.resize(now.size());
  for (std::size_t shard = 0; shard < now.size(); ++shard) {
    if (const Histogram since = difference(now[shard], told_[shard]); !since.empty()) {
      fill(*value_of(event, concat("staleness/shard-", shard)).mutable_histo(), since);
    }
  }
  for (const auto& [shard, values] : gaps_) {
    fill(*value_of(event, "gaps/" + shard).mutable_histo(), values);
  }
  told_ = std::move(now);
  gaps_.clear();
  histograms_at_ = step_;
  if (event.has_summary()) {
    write(event);
  }
}

void TensorBoard::finish(bool done) {
  histograms();
  tensorboard::Event event;
  tensorboard::HParamsPluginData data;
  data.set_version(0);
  data.mutable_session_end_info()->set_status(done ? tensorboard::SessionEndInfo::STATUS_SUCCESS
                                                   : tensorboard::SessionEndInfo::STATUS_FAILURE);
  data.mutable_session_end_info()->set_end_time_secs(now());
  add_plugin_data(event, "_hparams_/session_end_info", data);
  write(event);
}

void TensorBoard::flush() {
  flushed_ = std::chrono::steady_clock::now();
  (void)file_->flush();  // a failure is remembered and told at the end
}

void TensorBoard::write(tensorboard::Event& event) {
  event.set_wall_time(now());
  if (!event.has_step()) {
    event.set_step(step_);
  }
  const std::string record = event.SerializeAsString();
  const std::string length = bytes_of(static_cast<std::uint64_t>(record.size()));
  file_->write(length + bytes_of(masked_crc32c(length)));
  file_->write(record + bytes_of(masked_crc32c(record)));
  constexpr std::chrono::seconds kBetween(1);
  if (std::chrono::steady_clock::now() - flushed_ >= kBetween) {
    flush();
  }
}

}  // namespace troupe
