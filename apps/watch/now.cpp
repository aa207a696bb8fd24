#include "apps/watch/now.hpp"

#include "apps/cli/json_fields.hpp"
#include "apps/cli/text.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/progress.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace troupe {
namespace {

constexpr std::size_t kEventsMax = 20;
constexpr std::size_t kBarWidth = 20;
constexpr double kSilentSeconds = 60;  // from then on it is worth saying
constexpr std::array kEvents{"lost", "returned", "lost_copy", "restart"};

google::protobuf::Struct object_in(const std::string& text) {
  google::protobuf::Struct object;
  parse_object(text, object);
  return object;
}

/// What follows `begin` up to the next quote; "" where it is not there.
std::string word_after(std::string_view line, std::string_view begin) {
  const std::size_t at = line.find(begin);
  if (at == line.npos) {
    return "";
  }
  line.remove_prefix(at + begin.size());
  return std::string(line.substr(0, line.find('"')));
}

/// "[######..............]"
std::string bar(double share) {
  const double clamped = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0;
  const auto full = static_cast<std::size_t>(std::lround(clamped * kBarWidth));
  return "[" + std::string(full, '#') + std::string(kBarWidth - full, '.') + "]";
}

/// "activation 46.0 %, error 44.1 %": the largest first, none below a hundredth.
std::string waits(const JsonFields& idle) {
  std::vector<std::pair<double, std::string>> all;
  for (const auto& [name, share] : idle) {
    if (share.number_value() >= 0.01) {
      all.emplace_back(-share.number_value(), name);
    }
  }
  std::sort(all.begin(), all.end());
  std::string text;
  for (const auto& [share, name] : all) {
    text += (text.empty() ? "" : ", ") + name + " " + percent(-share);
  }
  return text.empty() ? "nothing" : text;
}

using TextRows = std::vector<std::vector<std::string>>;

/// Of the whole run where it is over, else of the last line.
TextRows stage_rows(const JsonFields& summary, const JsonFields& train) {
  TextRows rows;
  const auto add = [&rows](const std::string& stage, double busy, const JsonFields& idle) {
    rows.push_back({stage, bar(busy) + " " + percent(busy), "waits for " + waits(idle)});
  };
  const JsonFields& busy = object_of(summary, "busy");
  for (std::size_t i = 0; i < busy.size(); ++i) {
    const std::string stage = concat("stage-", i);
    add(stage,
        number_of(busy, stage.c_str()),
        object_of(object_of(summary, "idle"), stage.c_str()));
  }
  const JsonFields& now = object_of(train, "stages");
  for (std::size_t i = 0; i < now.size() && busy.empty(); ++i) {
    const std::string stage = concat("stage-", i);
    const JsonFields& of = object_of(now, stage.c_str());
    add(stage, number_of(of, "busy"), object_of(of, "idle"));
  }
  return rows;
}

/// `shards`: an object each, with the mean and the max.
std::string shard_text(const JsonFields& shards) {
  std::string text;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto found = shards.find(concat("shard-", i));
    if (found == shards.end()) {
      continue;  // it has applied nothing since the line before
    }
    const JsonFields& shard = found->second.struct_value().fields();
    text += fill_in("{}shard-{} {}/{}",
                    text.empty() ? "" : "  ",
                    i,
                    number(number_of(shard, "mean"), "%.2f"),
                    number_of(shard, "max"));
  }
  return text;
}

std::string accuracy_text(const JsonFields& fields) {
  const double accuracy = number_of(fields, "accuracy");
  return std::isfinite(accuracy) ? "  acc " + percent(accuracy) : "";
}

TextRows train_rows(const JsonFields& t) {
  if (t.empty()) {
    return {};
  }
  const double busy = number_of(t, "busy");
  return {{"step",
           fill_in("{}  epoch {}  loss {}{}",
                   number_of(t, "step"),
                   number(number_of(t, "epoch"), "%.3g"),
                   number(number_of(t, "loss")),
                   accuracy_text(t))},
          {"speed",
           fill_in("{} samples/s  {} of the run's clock",
                   short_number(number_of(t, "samples_per_second")),
                   duration(number_of(t, "seconds")))},
          {"staleness",
           fill_in("median {}, most {} versions",
                   number_of(t, "staleness_p50"),
                   number_of(t, "staleness_max"))},
          {"stages",
           bar(busy) + " work " + percent(busy) + ", wait for " + waits(object_of(t, "idle"))}};
}

TextRows summary_rows(const JsonFields& summary) {
  if (summary.empty()) {
    return {};
  }
  return {{"the run",
           fill_in("{} updates, train loss {}",
                   number_of(summary, "updates"),
                   number(number_of(summary, "train_loss")))},
          {"by shard", shard_text(object_of(summary, "staleness")) + "  (staleness, mean/max)"}};
}

TextRows scheme_rows(const JsonFields& comparison) {
  TextRows rows;
  const auto schemes = comparison.find("schemes");
  if (schemes == comparison.end()) {
    return rows;
  }
  for (const auto& scheme : schemes->second.list_value().values()) {
    const JsonFields& s = scheme.struct_value().fields();
    const auto mean = [&](const char* what) {
      return number_of(object_of(s, what), "mean");
    };
    rows.push_back({words_of(s, "scheme"),
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
  constexpr std::string_view kBegin = "{\"kind\":\"";
  if (!line.starts_with(kBegin)) {
    return;
  }
  const std::string kind = word_after(line, kBegin);
  if (std::find(kEvents.begin(), kEvents.end(), kind) != kEvents.end()) {
    events_.emplace_back(line);
    events_.erase(
        events_.begin(),
        events_.end() - static_cast<std::ptrdiff_t>(std::min(events_.size(), kEventsMax)));
  } else {
    last_[kind == "gap" ? "gap " + word_after(line, "\"shard\":\"") : kind] = line;
  }
}

std::string RunNow::line(const std::string& kind) const {
  const auto found = last_.find(kind);
  return found != last_.end() ? found->second : "null";
}

std::string RunNow::json() const {
  const auto sound = [](const std::string& text) {
    google::protobuf::Struct object;
    return parse_object(text, object) ? text : "null";
  };
  JsonObject all;
  all.add("name", run_.name).add("folder", words_of(object_in(line("run")).fields(), "folder"));
  all.add("state",
          state_.over     ? "over"
          : state_.killed ? "killed"
                          : "going on")
      .add("silent", state_.silent);
  for (const char* kind : {"header", "train", "evaluation", "summary", "comparison"}) {
    all.raw(kind, sound(line(kind)));
  }
  JsonObject gaps;
  for (const auto& [kind, text] : last_) {
    if (kind.starts_with("gap ")) {
      gaps.add(kind.substr(4), number_of(object_in(text).fields(), "gap"));
    }
  }
  std::string events;
  for (const std::string& event : events_) {
    events += (events.empty() ? "" : ",") + sound(event);
  }
  return all.add("gap", gaps)
      .raw("events", "[" + events + "]")
      .raw("diagnosis", sound(line("diagnosis")))
      .text();
}

std::string RunNow::text(bool diagnose) const {
  const auto object = [this](const char* kind) {
    return object_in(line(kind));
  };
  const auto summary = object("summary");
  const auto header = object("header");
  const std::string clock = words_of(header.fields(), "clock");
  const std::string outcome = words_of(summary.fields(), "outcome");
  std::string stands = state_.over     ? outcome.empty() ? "over" : outcome
                       : state_.killed ? "killed"
                                       : "going on";
  if (stands == "going on" && state_.silent > kSilentSeconds) {
    stands += ", silent for " + duration(state_.silent) + ": it was killed, or is slow";
  }
  const auto run = object("run");
  std::string text = table({{run_.name,
                             stands + (clock.empty() ? "" : ", " + clock + " clock"),
                             words_of(run.fields(), "folder")}});
  const auto train = object("train");
  TextRows rows = train_rows(train.fields());
  if (rows.empty() && state_.trials > 0 && !state_.over) {
    rows.push_back({"trials", fill_in("{} are over; the table comes when all are", state_.trials)});
  }
  const auto evaluation = object("evaluation");
  if (const auto& e = evaluation.fields(); !e.empty()) {
    rows.push_back({"test",
                    fill_in("loss {}{}  at step {}",
                            number(number_of(e, "loss")),
                            accuracy_text(e),
                            number_of(e, "step"))});
  }
  std::string gaps;
  for (const auto& [kind, line] : last_) {
    if (kind.starts_with("gap ")) {
      gaps += (gaps.empty() ? "" : "  ") + kind.substr(4) + " " +
              number(number_of(object_in(line).fields(), "gap"), "%.3g");
    }
  }
  if (!gaps.empty()) {
    rows.push_back({"gap", gaps});
  }
  if (const std::string shards = shard_text(object_of(train.fields(), "shards"));
      summary.fields().empty() && !shards.empty()) {
    rows.push_back({"by shard", shards + "  (staleness, mean/max, of the last line)"});
  }
  for (const TextRows& more :
       {summary_rows(summary.fields()), scheme_rows(object("comparison").fields())}) {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  for (const std::string& event : events_) {
    rows.push_back({"event", event});
  }
  text += table(rows, "  ") + table(stage_rows(summary.fields(), train.fields()), "  ");
  const auto told = object("diagnosis");
  if (diagnose && told.fields().contains("sentences")) {
    for (const auto& sentence : told.fields().at("sentences").list_value().values()) {
      text += "  " + wrapped("- " + sentence.string_value(), kPageWidth - 2, "    ") + "\n";
    }
  }
  return text;
}

}  // namespace troupe
