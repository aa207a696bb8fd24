#include "runtime/schemes/schedules/file.hpp"

#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "runtime/schemes/schedules/built_in.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace troupe::schedules {
namespace {

constexpr const char* kFile = "pipeline.schedule.file";
constexpr std::string_view kActs = "FBIW";  // as Act numbers them
constexpr std::size_t kFileMax = std::size_t{1} << 20;
constexpr std::int32_t kNumberMax = 65535;  // of chunks and micro-batches

using Cells = std::vector<std::string>;

/// What stands between `separator`s, without white space around it.
Cells split(std::string_view text, char separator) {
  Cells parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    std::string_view part = text.substr(at, end - at);
    while (!part.empty() && std::isspace(static_cast<unsigned char>(part.front()))) {
      part.remove_prefix(1);
    }
    while (!part.empty() && std::isspace(static_cast<unsigned char>(part.back()))) {
      part.remove_suffix(1);
    }
    parts.emplace_back(part);
    at = end + 1;
  }
  return parts;
}

/// The actions of a cell: none of an empty one, two of "(0F3;3B1)OVERLAP_F_B".
Cells actions_in(const std::string& cell) {
  if (cell.empty() || cell == ".") {
    return {};
  }
  const std::size_t end = cell.find(')');
  return cell.front() == '(' && end != cell.npos && cell.substr(end) == ")OVERLAP_F_B"
             ? split(std::string_view(cell).substr(1, end - 1), ';')
             : Cells{cell};
}

/// "1B3": its micro-batch counts within mini-batch 0. Nothing where that is none.
std::optional<Action> action_of(const std::string& text) {
  Action action;
  const char* const end = text.data() + text.size();
  const auto chunk = std::from_chars(text.data(), end, action.chunk);
  const std::size_t act = chunk.ptr == end ? kActs.npos : kActs.find(*chunk.ptr);
  if (chunk.ec != std::errc() || act == kActs.npos) {
    return {};
  }
  action.act = static_cast<Act>(act);
  const auto number = std::from_chars(chunk.ptr + 1, end, action.micro_batch);
  const bool whole = number.ec == std::errc() && number.ptr == end;
  return whole && std::max(action.chunk, action.micro_batch) <= kNumberMax &&
                 std::min(action.chunk, action.micro_batch) >= 0
             ? std::optional(action)
             : std::nullopt;
}

std::string text_of(Act act, std::int32_t chunk, std::int64_t micro_batch) {
  return concat(chunk, kActs[static_cast<std::size_t>(act)], micro_batch);
}

/// The actions of a row that is known to be sound.
std::vector<Action> actions_of(const std::string& row) {
  std::vector<Action> actions;
  for (const std::string& cell : split(row, ' ')) {
    for (const std::string& text : actions_in(cell)) {
      if (const auto action = action_of(text)) {
        actions.push_back(*action);
      }
    }
  }
  return actions;
}

std::vector<std::int32_t> place_as_rows(const ScheduleOptions& options) {
  std::map<std::int32_t, std::int32_t> stage_of;
  for (std::size_t row = 0; row < options.rows.size(); ++row) {
    for (const Action& action : actions_of(options.rows[row])) {
      stage_of[action.chunk] = static_cast<std::int32_t>(row);
    }
  }
  std::vector<std::int32_t> placement;
  for (const auto& [chunk, stage] : stage_of) {
    placement.push_back(stage);
  }
  return placement;
}

/// A cell as a message may have it, whatever the file is.
std::string legible(std::string cell) {
  constexpr std::size_t kMost = 40;
  std::replace_if(
      cell.begin(), cell.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return cell.size() > kMost ? cell.substr(0, kMost) + "..." : cell;
}

/// Looks at cell after cell of all rows.
class Reader {
 public:
  Result<void> read(const std::vector<std::string>& rows) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const Cells cells = split(rows[row], ' ');
      for (std::size_t column = 0; column < cells.size(); ++column) {
        for (const std::string& text : actions_in(cells[column])) {
          if (const std::string wrong = see(static_cast<std::int32_t>(row), text); !wrong.empty()) {
            return usage_error(
                "{}: row {}, cell {}: {} {}", kFile, row + 1, column + 1, legible(text), wrong);
          }
        }
      }
    }
    return {};
  }

  /// After all rows. Error (usage) where they are not one mini-batch of `micro_batches` on every chunk.
  Result<void> check_whole(std::int32_t micro_batches) const {
    std::int32_t chunk = 0;
    for (const auto& [number, seen] : chunks_) {
      if (number != chunk) {
        return usage_error("{}: it has a chunk {}, and no chunk {}", kFile, number, chunk);
      }
      const std::int64_t most = chunks_.begin()->second.forwards;
      for (const auto& [act, count] :
           {std::pair{Act::forward, seen.forwards}, {Act::weight_gradient, seen.gradients}}) {
        if (count != most) {
          return usage_error(
              "{}: row {} ends without {}: each chunk has a forward, and a backward "
              "or its halves I and W, for each of {} micro-batches",
              kFile,
              seen.row + 1,
              text_of(act, number, count),
              most);
        }
      }
      if (most != micro_batches) {
        return usage_error(
            "{}: its mini-batch has {} micro-batches, and pipeline.micro_batches is "
            "{}; use {}",
            kFile,
            most,
            micro_batches,
            most);
      }
      ++chunk;
    }
    return {};
  }

 private:
  struct Seen {
    std::int32_t row = 0;
    std::int64_t forwards = 0;
    std::int64_t errors = 0;
    std::int64_t gradients = 0;
  };

  /// What is wrong with the next action; "" where nothing is.
  std::string see(std::int32_t row, const std::string& text) {
    const auto action = action_of(text);
    if (!action) {
      return text.find('_') != text.npos || text.find("SHARD") != text.npos
                 ? "is of the form with communication (compute_comms): stages send and wait by "
                   "themselves, so leave it out (compute_only)"
                 : "is no action; expected a chunk, one of F, B, I and W, and a micro-batch, as "
                   "0F3";
    }
    const std::int32_t c = action->chunk;
    Seen& seen = chunks_.try_emplace(c, Seen{.row = row}).first->second;
    if (seen.row != row) {
      return fill_in("is a second stage's: row {} has chunk {}, too", seen.row + 1, c);
    }
    const std::int64_t n = action->micro_batch;
    // Counted by this action: the number of the micro-batch that is due; and what it has to come after.
    switch (action->act) {
      case Act::forward:
        return due(*action, seen.forwards++);
      case Act::backward:
        if (seen.gradients < seen.errors && n == seen.errors) {
          return concat(
              "comes before ", text_of(Act::weight_gradient, c, seen.gradients), kInOrder);
        }
        ++seen.gradients;
        return due(*action, seen.errors++, Act::forward, seen.forwards);
      case Act::input_gradient:
        return due(*action, seen.errors++, Act::forward, seen.forwards);
      case Act::weight_gradient:
        return due(*action, seen.gradients++, Act::input_gradient, seen.errors);
      case Act::update:
        break;
    }
    return {};
  }

  static std::string due(const Action& a,
                         std::int64_t number,
                         Act after = Act::update,
                         std::int64_t done = 0) {
    if (a.micro_batch < number) {
      return "is there for the second time";
    }
    if (a.micro_batch > number) {
      return concat("comes before ", text_of(a.act, a.chunk, number), kInOrder);
    }
    return after == Act::update || done > number
               ? ""
               : concat("comes before ", text_of(after, a.chunk, number), ", which it needs");
  }

  static constexpr std::string_view kInOrder =
      ": the micro-batches of a chunk go in order, so that sums are those of every flushed "
      "schedule";

  std::map<std::int32_t, Seen> chunks_;
};

Result<void> sound_rows(const ScheduleOptions& options) {
  if (options.rows.empty()) {
    return usage_error("{}.path: name the CSV file", kFile);
  }
  Reader reader;
  TROUPE_TRY(reader.read(options.rows));
  if (static_cast<std::int32_t>(options.rows.size()) != options.stages) {
    return usage_error("{}: it has {} rows, one a stage, and pipeline.stages is {}",
                       kFile,
                       options.rows.size(),
                       options.stages);
  }
  for (std::size_t row = 0; row < options.rows.size(); ++row) {
    if (actions_of(options.rows[row]).empty()) {
      return usage_error("{}: row {} has no action; each stage needs a chunk", kFile, row + 1);
    }
  }
  return reader.check_whole(options.micro_batches);
}

void write_rows(SequenceBuilder& s) {
  s.begin_period();
  std::vector<std::int32_t> chunks;
  for (const Action& action : actions_of(s.rows()[static_cast<std::size_t>(s.stage())])) {
    s.add(action.act, action.chunk, action.micro_batch);
    if (std::find(chunks.begin(), chunks.end(), action.chunk) == chunks.end()) {
      chunks.push_back(action.chunk);
    }
  }
  std::sort(chunks.rbegin(), chunks.rend());
  for (const std::int32_t chunk : chunks) {
    s.add(Act::update, chunk, 0);
  }
}

}  // namespace

ScheduleScheme file() {
  return {.info = {.name = "file",
                   .summary = "as a CSV file of PyTorch's pipelining says; each stage updates when "
                              "its row is done",
                   .paper = "torch.distributed.pipelining, schedules of the form compute_only"},
          .flushed = true,
          .staleness = "0",
          .bubble = "",
          .write = write_rows,
          .fits = sound_rows,
          .place = place_as_rows};
}

}  // namespace troupe::schedules

namespace troupe {

Result<std::vector<std::string>> schedule_rows(const proto::Experiment& experiment) {
  const proto::ScheduleFile& file = experiment.pipeline().schedule().file();
  std::vector<std::string> rows(file.rows().begin(), file.rows().end());
  if (file.path().empty()) {
    return rows;
  }
  errno = 0;
  std::ifstream in(file.path(), std::ios::binary);
  std::string text(schedules::kFileMax + 1, '\0');  // no more is read: a device may have no end
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  const std::string reason = std::generic_category().message(errno);
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (!in.is_open() || in.bad() || text.size() > schedules::kFileMax) {
    return usage_error("{}.path: {} {}",
                       schedules::kFile,
                       file.path(),
                       text.size() > schedules::kFileMax ? "is larger than 1 MiB"
                                                         : concat("cannot be read: ", reason));
  }
  rows.clear();
  for (const std::string& line : schedules::split(text, '\n')) {
    std::string& row = rows.emplace_back();
    for (std::string& cell : schedules::split(line, ',')) {
      std::erase(cell, ' ');  // which parts cells here
      row += concat(row.empty() ? "" : " ", cell.empty() ? "." : cell);
    }
  }
  while (!rows.empty() && rows.back() == ".") {
    rows.pop_back();
  }
  return rows;
}

Result<void> keep_schedule_rows(proto::Experiment& experiment) {
  if (experiment.pipeline().schedule().has_file()) {
    const auto rows = schedule_rows(experiment);
    TROUPE_TRY(rows);
    proto::ScheduleFile& file = *experiment.mutable_pipeline()->mutable_schedule()->mutable_file();
    file.clear_path();
    file.mutable_rows()->Assign(rows->begin(), rows->end());
  }
  return {};
}

Result<std::string> schedule_csv(const Schedule& schedule) {
  if (!schedule.flushed) {
    return usage_error(
        "--csv: {} never flushes, and the file has one mini-batch; choose a flushed "
        "pipeline.schedule",
        schedule.options.name);
  }
  if (!schedule.copies.empty()) {
    return usage_error("--csv: {} has chunks on two stages, and in the file a chunk has one",
                       schedule.options.name);
  }
  std::string text;
  for (const Sequence& stage : schedule.stages) {
    const char* comma = "";
    for (const Action& a : stage.period) {
      if (a.act != Act::update) {
        text += comma + schedules::text_of(a.act, a.chunk, a.micro_batch);
        comma = ",";
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace troupe
