#include "apps/run/replay.hpp"

#include "apps/cli/machine.hpp"
#include "apps/cli/version.hpp"
#include "apps/presets/presets.hpp"
#include "apps/run/phases.hpp"
#include "apps/run/run_state.hpp"
#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/record/json_reader.hpp"
#include "runtime/record/order_text.hpp"
#include "runtime/system/replay.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// Members of summary.json that a replay comes to. The others are of the real clock, or are means (train_loss, gap
/// and kMeanOfStaleness) over records of several threads, which were added in an order of their own.
constexpr std::array<const char*, 12> kCompared{"outcome",
                                                "updates",
                                                "epochs",
                                                "samples",
                                                "test_loss",
                                                "test_accuracy",
                                                "staleness",
                                                "stashes",
                                                "bytes_sent",
                                                "servers",
                                                "weights_sha256",
                                                "order_sha256"};
constexpr const char* kMeanOfStaleness = "seconds_mean";
constexpr std::uintmax_t kSummaryBytesMax = std::uintmax_t{64} << 20;

Error error_in(const fs::path& path, const std::string& what) {
  return {ErrorKind::data, concat(path.string(), ": ", what)};
}

/// Error (data) where it is not there, which is so while a run goes on.
Result<std::string> read_summary(const fs::path& path) {
  std::error_code code;
  const std::uintmax_t bytes = fs::file_size(path, code);
  std::ifstream file(path, std::ios::binary);
  if (code || !file) {
    return error_in(path,
                    "there is no such file: this is no folder of a run, or the run has not come "
                    "to an end of its own, and then its order is not whole");
  }
  if (bytes > kSummaryBytesMax) {
    return error_in(path, "it is longer than what troupe writes");
  }
  std::ostringstream text;
  text << file.rdbuf();
  if (!Json::parse(text.str()).is_object()) {
    return error_in(path, "this is no JSON");
  }
  return text.str();
}

/// Error (data) where the run goes on, or was killed after it had: it had told its end before it was resumed, and what it has
/// recorded since then is not whole.
Result<void> check_is_over(const fs::path& folder, const Json& summary) {
  const fs::path metrics = folder / "metrics.jsonl";
  if (is_being_written(metrics)) {
    return error_in(folder, "the run goes on, so that its order is not whole yet");
  }
  std::error_code code;
  if (fs::exists(metrics, code) &&
      !tells_the_end(folder / "summary.json", summary["updates"].number(), metrics)) {
    return error_in(
        folder,
        concat(
            "the run went on after the end that summary.json tells, and has not come to an end of "
            "its own since, so that its order is not whole; troupe run --resume ",
            folder.string(),
            " brings it to one"));
  }
  return {};
}

std::string_view shown(const Json& value) {
  return value.text().empty() ? "nothing" : value.text();
}

/// "updates: 60 then, 59 now", of the first that differs; "" where both are the same. Members called `left_out` do not count.
std::string difference(const std::string& path,
                       const Json& then,
                       const Json& now,
                       std::string_view left_out) {
  std::string found;
  if (then.is_object() && now.is_object()) {
    std::map<std::string, std::pair<Json, Json>> both;
    for (const auto& [key, value] : then.by_name()) {
      both[key].first = value;
    }
    for (const auto& [key, value] : now.by_name()) {
      both[key].second = value;
    }
    for (const auto& [key, values] : both) {
      if (found.empty() && key != left_out) {
        found = difference(concat(path, ".", key), values.first, values.second, left_out);
      }
    }
  } else if (then.is_list() && now.is_list()) {
    const std::vector<Json> before = then.elements();
    const std::vector<Json> after = now.elements();
    if (before.size() != after.size()) {
      return concat(path, " has ", before.size(), " entries then, ", after.size(), " now");
    }
    for (std::size_t i = 0; i < before.size() && found.empty(); ++i) {
      found = difference(concat(path, "[", i, "]"), before[i], after[i], left_out);
    }
  } else if (then.text() != now.text()) {
    found = concat(path, ": ", shown(then), " then, ", shown(now), " now");
  }
  return found;
}

/// The recorded run of one folder.
class Record {
 public:
  /// What the folder says of itself is read, and checked as far as it can be without the cast.
  static Result<Record> open(const fs::path& folder) {
    auto summary = read_summary(folder / "summary.json");
    TROUPE_TRY(summary);
    const fs::path path = folder / "summary.json";
    const Json told = Json::parse(*summary);
    if (told["clock"].words() == "virtual") {
      return Error{ErrorKind::usage,
                   concat(folder.string(),
                          " is of a run on the virtual clock, which is repeated by running it "
                          "again: troupe sim ",
                          folder.string())};
    }
    if (const std::string by = told["version"].words(); by != version()) {
      return error_in(path,
                      fill_in("the run was made by {}, this is {}, which may act otherwise",
                              by.empty() ? "an earlier troupe" : "troupe " + by,
                              version()));
    }
    TROUPE_TRY(check_is_over(folder, told));
    return Record(folder, *std::move(summary));
  }

  Result<void> prepare(const Blueprint& blueprint, const Cast& cast) {
    TROUPE_TRY(check_experiment_of(blueprint));
    if (!blueprint.experiment->record().order()) {
      return error_in(
          folder_,
          "the run has not recorded its order (record.order=false). A run of threads that write "
          "into one buffer (hogwild) never does: what they met there is in no message");
    }
    for (int thread = 0; thread < cast.threads; ++thread) {
      if (const fs::path text = text_of_thread(thread); !fs::exists(text)) {
        return error_in(text, "there is no such file");
      }
      auto deliveries = read_order(text_of_thread(thread), cast, thread);
      TROUPE_TRY(deliveries);
      order_.push_back(*std::move(deliveries));
    }
    if (const fs::path more = text_of_thread(cast.threads); fs::exists(more)) {
      return error_in(more, concat("this experiment has ", cast.threads, " threads alone"));
    }
    return {};
  }

  Ending play(Cast& cast,
              RecordSink& records,
              const std::vector<OrderSink*>& orders,
              const std::function<bool()>& interrupted) {
    Replay replay(cast, order_, records, orders);
    const bool broken_off =
        told()["outcome"].words() == "interrupted" && told()["weights_sha256"].words().empty();
    Ending ending = replay.run(broken_off, [&] { return interrupted_ = interrupted(); });
    deliveries_ = replay.delivered();
    if (const auto& departure = replay.departure()) {
      departed_ = fill_in("the replay departs from the record at {}:{}: {}",
                          text_of_thread(static_cast<int>(departure->thread)).string(),
                          departure->delivery + 1,
                          departure->why);
      ending.cause = departed_;
    }
    return ending;
  }

  /// What has come out otherwise than it was recorded.
  std::vector<std::string> differences(const RunResult& result,
                                       const proto::Experiment& experiment) const {
    if (!departed_.empty()) {
      return {departed_};
    }
    Summary summary = result.summary;
    summary.outcome = outcome_text(result.exit_code, result.cause);
    const std::string text = to_json(summary, experiment);
    const Json now = Json::parse(text);
    std::vector<std::string> found;
    for (const char* key : kCompared) {
      if (std::string one = difference(key, told()[key], now[key], kMeanOfStaleness);
          !one.empty()) {
        found.push_back(std::move(one));
      }
    }
    const std::string note = other_instructions(told()["origin"]["instructions"].words());
    if (!found.empty() && !note.empty()) {
      found.push_back(note);
    }
    return found;
  }

  bool interrupted() const { return interrupted_; }

  std::uint64_t deliveries() const { return deliveries_; }

  std::size_t threads() const { return order_.size(); }

 private:
  Record(fs::path folder, std::string summary)
      : folder_(std::move(folder)), summary_(std::move(summary)) {}

  Json told() const { return Json::parse(summary_); }

  fs::path text_of_thread(int thread) const { return folder_ / concat("order-", thread, ".log"); }

  /// The experiment of the folder is the one of its summary. Weights to start from are left out: a run that
  /// went on from a checkpoint did not name them.
  Result<void> check_experiment_of(const Blueprint& blueprint) const {
    const fs::path path = folder_ / "experiment.textproto";
    if (const std::string& from = blueprint.experiment->resumed().from(); !from.empty()) {
      return error_in(path,
                      concat("this run went on from ",
                             from,
                             " on another topology; a replay begins with a run's beginning, so "
                             "that the run there can be replayed, and this one cannot"));
    }
    const std::string ours = print_experiment_json(blueprint.experiment);
    const std::string what =
        difference("experiment", told()["experiment"], Json::parse(ours), "start_from");
    return what.empty() ? Result<void>() : error_in(path, "this is not what was run: " + what);
  }

  fs::path folder_;
  std::string summary_;
  Deliveries order_;
  std::string departed_;
  bool interrupted_ = false;
  std::uint64_t deliveries_ = 0;
};

/// The records of a run's phases, one after the other; a run without phases has one.
class Records final : public Driver {
 public:
  explicit Records(std::vector<fs::path> folders) : folders_(std::move(folders)) {}

  void begin(std::size_t phase) { phase_ = phase; }

  Result<void> prepare(const Blueprint& blueprint, const Cast& cast) override {
    auto opened = Record::open(folders_[phase_]);
    Result<void> ready = opened ? Result<void>() : opened.error();
    if (opened) {
      record_.emplace(*std::move(opened));
      ready = record_->prepare(blueprint, cast);
    }
    refused_ = refused_ || !ready;
    return ready;
  }

  Ending play(Cast& cast,
              RecordSink& records,
              const std::vector<OrderSink*>& orders,
              const std::function<bool()>& interrupted) override {
    return record_->play(cast, records, orders, interrupted);
  }

  /// What has become of the phase that is played.
  const Record& record() const { return *record_; }

  bool refused() const { return refused_; }

 private:
  std::vector<fs::path> folders_;
  std::size_t phase_ = 0;
  std::optional<Record> record_;
  bool refused_ = false;
};

void add(Replayed& all, const Record& record, const RunResult& result, const proto::Experiment& e) {
  all.deliveries += record.deliveries();
  all.threads = std::max(all.threads, record.threads());
  all.interrupted = all.interrupted || record.interrupted();
  const std::vector<std::string> found = record.differences(result, e);
  all.differences.insert(all.differences.end(), found.begin(), found.end());
  all.summary = result.summary;
}

/// The same with all of its phases.
Result<Replayed> replay_phases(const proto::Experiment& whole,
                               std::vector<Phase> phases,
                               const RunOptions& options,
                               Records& records) {
  std::vector<proto::Experiment> experiments = mapped<proto::Experiment>(
      phases, [&](const Phase& phase) { return phase.blueprint.experiment; });
  Replayed all;
  const auto result = run_phases(whole,
                                 std::move(phases),
                                 options,
                                 {.begins = [&](std::size_t i) { records.begin(i); },
                                  .ended =
                                      [&](std::size_t i, const RunResult& ended) {
                                        add(all, records.record(), ended, experiments[i]);
                                      }});
  TROUPE_TRY(result);
  if (records.refused()) {
    return Error{static_cast<ErrorKind>(result->exit_code), result->cause};
  }
  return all;
}

}  // namespace

Result<Replayed> replay(const fs::path& folder, const ReplayOptions& options) {
  if (auto whole = read_summary(folder / "summary.json"); !whole) {
    return whole.error();  // told before the data is read
  }
  const auto experiment = load_experiment((folder / "experiment.textproto").string(), {});
  TROUPE_TRY(experiment);
  auto phases = make_phases(*experiment, false);
  TROUPE_TRY(phases);
  std::vector<fs::path> folders = mapped<fs::path>(*phases, [&](const Phase& phase) {
    return phase.folder.empty() ? folder : folder / phase.folder;
  });
  Records records(std::move(folders));
  const RunOptions how{.virtual_clock = false,
                       .directory = options.out,
                       .progress = options.progress,
                       .terminal = options.terminal,
                       .interrupts = options.interrupts,
                       .tee = nullptr,
                       .recast = options.recast,
                       .driver = &records};
  if (!experiment->phases().empty()) {
    return replay_phases(*experiment, *std::move(phases), how, records);
  }
  const Blueprint& blueprint = phases->front().blueprint;
  auto result = run_experiment(blueprint, how);
  TROUPE_TRY(result);
  Replayed all;
  add(all, records.record(), *result, blueprint.experiment);
  return all;
}

}  // namespace troupe
