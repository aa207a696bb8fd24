#include "apps/watch/now.hpp"

#include "apps/cli/text.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/json_reader.hpp"
#include "runtime/record/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace troupe {
namespace {

constexpr std::size_t kEventsMax = 20;
constexpr std::size_t kRowsMax = 64;  // of stages, or shards in a row
constexpr std::size_t kBarWidth = 20;
constexpr double kSilentSeconds = 60;  // from then on it is worth saying
constexpr std::array kEvents{"lost", "returned", "lost_copy", "restart"};

/// "[######..............]"
std::string bar(double share) {
  const double clamped = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0;
  const auto full = static_cast<std::size_t>(std::lround(clamped * kBarWidth));
  return "[" + std::string(full, '#') + std::string(kBarWidth - full, '.') + "]";
}

/// "activation 46.0 %, error 44.1 %": the largest first, none below a hundredth.
std::string waits(const Json& idle) {
  std::vector<std::pair<double, std::string>> all;
  for (const auto& [name, share] : idle.members()) {
    if (share.number() >= 0.01) {
      all.emplace_back(-share.number(), name);
    }
  }
  std::sort(all.begin(), all.end());
  return all.empty() ? "nothing" : joined(all, ", ", [](const auto& of) {
    return of.second + " " + percent(-of.first);
  });
}

using TextRows = std::vector<std::vector<std::string>>;

/// Of the whole run where it is over, else of the last line.
TextRows stage_rows(const Json& summary, const Json& train) {
  std::map<std::string, Json> busy = summary["busy"].by_name();
  const bool over = !busy.empty();
  std::map<std::string, Json> idle = summary["idle"].by_name();
  std::map<std::string, Json> now = train["stages"].by_name();
  const std::size_t known = over ? busy.size() : now.size();
  TextRows rows;
  for (std::size_t i = 0; i < std::min(known, kRowsMax); ++i) {
    const std::string stage = concat("stage-", i);
    const double share = (over ? busy[stage] : now[stage]["busy"]).number();
    rows.push_back({stage,
                    bar(share) + " " + percent(share),
                    "waits for " + waits(over ? idle[stage] : now[stage]["idle"])});
  }
  if (known > kRowsMax) {
    rows.push_back({"...", concat("and ", known - kRowsMax, " more")});
  }
  return rows;
}

/// `shards`: an object each, with the mean and the max.
std::string shard_text(const Json& shards) {
  // A line leaves out who has applied nothing since the one before.
  const std::vector<std::pair<std::string, Json>> all = shards.members();
  std::string text;
  for (std::size_t i = 0; i < std::min(all.size(), kRowsMax); ++i) {
    const auto& [name, shard] = all[i];
    text += fill_in("{}{} {}/{}",
                    text.empty() ? "" : "  ",
                    name,
                    number(shard["mean"].number(), "%.2f"),
                    shard["max"].number());
  }
  return all.size() > kRowsMax ? concat(text, "  ... and ", all.size() - kRowsMax, " more") : text;
}

std::string accuracy_text(const Json& fields) {
  const double accuracy = fields["accuracy"].number();
  return std::isfinite(accuracy) ? "  acc " + percent(accuracy) : "";
}

TextRows train_rows(const Json& t) {
  if (!t.is_object()) {
    return {};
  }
  const double busy = t["busy"].number();
  return {{"step",
           fill_in("{}  epoch {}  loss {}{}",
                   t["step"].number(),
                   number(t["epoch"].number(), "%.3g"),
                   number(t["loss"].number()),
                   accuracy_text(t))},
          {"speed",
           fill_in("{} samples/s  {} of the run's clock",
                   short_number(t["samples_per_second"].number()),
                   duration(t["seconds"].number()))},
          {"staleness",
           fill_in("median {}, most {} versions",
                   t["staleness_p50"].number(),
                   t["staleness_max"].number())},
          {"stages", bar(busy) + " work " + percent(busy) + ", wait for " + waits(t["idle"])}};
}

TextRows summary_rows(const Json& summary) {
  if (!summary.is_object()) {
    return {};
  }
  return {{"the run",
           fill_in("{} updates, train loss {}",
                   summary["updates"].number(),
                   number(summary["train_loss"].number()))},
          {"by shard", shard_text(summary["staleness"]) + "  (staleness, mean/max)"}};
}

TextRows scheme_rows(const Json& comparison) {
  TextRows rows;
  for (const Json& scheme : comparison["schemes"].elements()) {
    const auto mean = [&](const char* what) {
      return scheme[what]["mean"].number();
    };
    rows.push_back({scheme["scheme"].words(),
                    fill_in("accuracy {}  train loss {}  staleness {}",
                            number(mean("accuracy_end")),
                            number(mean("train_loss")),
                            number(mean("staleness_mean"), "%.2f"))});
  }
  return rows;
}

}  // namespace

Result<void> RunNow::read_on() {
  return troupe::read_on(
      run_,
      state_,
      [this] {
        last_.clear();
        events_.clear();
      },
      [this](std::string_view line) { take(line); });
}

void RunNow::take(std::string_view line) {
  const Json told = Json::parse(line);
  const std::string kind = told["kind"].words();
  if (std::find(kEvents.begin(), kEvents.end(), kind) != kEvents.end()) {
    events_.emplace_back(line);
    events_.erase(
        events_.begin(),
        events_.end() - static_cast<std::ptrdiff_t>(std::min(events_.size(), kEventsMax)));
  } else if (!kind.empty()) {
    last_[kind == "gap" ? "gap " + told["shard"].words() : kind] = line;
  }
}

Json RunNow::of(const std::string& kind) const {
  const auto found = last_.find(kind);
  return found != last_.end() ? Json::parse(found->second) : Json();
}

std::string RunNow::json() const {
  const auto written = [this](const char* kind) {
    const Json line = of(kind);
    return line.is_object() ? line.text() : "null";
  };
  JsonObject all;
  all.add("name", run_.name).add("folder", of("run")["folder"].words());
  all.add("state",
          state_.over     ? "over"
          : state_.killed ? "killed"
                          : "going on")
      .add("silent", state_.silent);
  for (const char* kind : {"header", "train", "evaluation", "summary", "comparison"}) {
    all.raw(kind, written(kind));
  }
  JsonObject gaps;
  for (const auto& [kind, text] : last_) {
    if (kind.starts_with("gap ")) {
      gaps.add(kind.substr(4), Json::parse(text)["gap"].number());
    }
  }
  std::string events = joined(events_, ",");
  return all.add("gap", gaps)
      .raw("events", "[" + events + "]")
      .raw("diagnosis", written("diagnosis"))
      .text();
}

std::string RunNow::text(bool diagnose) const {
  const Json summary = of("summary");
  const std::string clock = of("header")["clock"].words();
  const std::string outcome = summary["outcome"].words();
  std::string stands = state_.over     ? outcome.empty() ? "over" : outcome
                       : state_.killed ? "killed"
                                       : "going on";
  if (stands == "going on" && state_.silent > kSilentSeconds) {
    stands += ", silent for " + duration(state_.silent) + ": it was killed, or is slow";
  }
  std::string text = table({{run_.name,
                             stands + (clock.empty() ? "" : ", " + clock + " clock"),
                             of("run")["folder"].words()}});
  const Json train = of("train");
  TextRows rows = train_rows(train);
  if (rows.empty() && state_.trials > 0 && !state_.over) {
    rows.push_back({"trials", fill_in("{} are over; the table comes when all are", state_.trials)});
  }
  if (const Json e = of("evaluation"); e.is_object()) {
    rows.push_back({"test",
                    fill_in("loss {}{}  at step {}",
                            number(e["loss"].number()),
                            accuracy_text(e),
                            e["step"].number())});
  }
  std::string gaps;
  for (const auto& [kind, line] : last_) {
    if (kind.starts_with("gap ")) {
      gaps += (gaps.empty() ? "" : "  ") + kind.substr(4) + " " +
              number(Json::parse(line)["gap"].number(), "%.3g");
    }
  }
  if (!gaps.empty()) {
    rows.push_back({"gap", gaps});
  }
  if (const std::string shards = shard_text(train["shards"]);
      !summary.is_object() && !shards.empty()) {
    rows.push_back({"by shard", shards + "  (staleness, mean/max, of the last line)"});
  }
  for (const TextRows& more : {summary_rows(summary), scheme_rows(of("comparison"))}) {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  for (const std::string& event : events_) {
    rows.push_back({"event", event});
  }
  text += table(rows, "  ") + table(stage_rows(summary, train), "  ");
  if (diagnose) {
    for (const Json& sentence : of("diagnosis")["sentences"].elements()) {
      text += "  " + wrapped("- " + sentence.words(), kPageWidth - 2, "    ") + "\n";
    }
  }
  return text;
}

}  // namespace troupe
