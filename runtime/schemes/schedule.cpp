#include "runtime/schemes/schedule.hpp"

#include "runtime/schemes/schedules/builder.hpp"
#include "runtime/schemes/timeline.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace troupe {
namespace {

struct Entry {
  SchedulePaper paper;
  bool flushed;
  void (*write)(SequenceBuilder&);
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> table{
      {{"sequential",
        "one micro-batch in the pipe at a time: F, B through all stages, then the next; an update "
        "after M of them",
        "0",
        "(K-1) M (T_F+T_B)",
        "naive model parallelism"},
       true,
       sequential},
      {{"gpipe",
        "M forwards, M backwards in the same order, one update",
        "0",
        "(K-1)(T_F+T_B)",
        "Huang et al. 2019, arXiv:1811.06965"},
       true,
       gpipe},
      {{"one_f_one_b",
        "min(d,M) forwards, then one forward and one backward in turn, then the rest; one update",
        "0",
        "(K-1)(T_F+T_B)",
        "PipeDream-Flush (Narayanan et al. 2021, arXiv:2006.09503), DAPPLE"},
       true,
       one_f_one_b},
      {{"interleaved",
        "1F1B over v chunks a stage: stage k works on chunks k, K+k, ...; v times the messages",
        "0",
        "(K-1)(T_F+T_B)/v",
        "Narayanan et al. 2021, arXiv:2104.04473"},
       true,
       interleaved},
      {{"zb_h1",
        "1F1B with a split backward: the error signal leaves after the input gradient, weight "
        "gradients fill the drain",
        "0",
        "(K-1)(T_F+T_B-T_W) for M >= K, T_W <= T_B (here T_B: the input gradient alone)",
        "Qi et al. 2024, arXiv:2401.10241"},
       true,
       zb_h1},
      {{"async_one_f_one_b",
        "d forwards, then one forward, one backward and (after each mini-batch) one update for "
        "ever",
        "d = K-1-k updates at M=1; ceil(max(0, d-j)/M) for micro-batch j",
        "0 once the pipe is full; (K-1)(T_F+T_B) once a run",
        "PipeDream (Narayanan et al. 2019)"},
       false,
       async_one_f_one_b},
      {{"async_full_duplex",
        "2d forwards, then a forward and a backward in every tick, for ever",
        "2d = 2(K-1-k) updates at M=1",
        "0 once the pipe is full",
        "Petrowski et al. 1993; Kosson et al. 2020, arXiv:2003.11666"},
       false,
       async_full_duplex},
  };
  return table;
}

/// Fills in `natural` and `first_natural`, walking in order. State carries over from the prologue
/// to the periods.
class Annotator {
 public:
  void annotate(Action& action) {
    action.natural = updates_[action.chunk];
    if (action.act == Act::forward && action.micro_batch == 0) {
      first_[{action.chunk, action.batch}] = action.natural;
    }
    const auto first = first_.find({action.chunk, action.batch});
    TROUPE_CHECK(first != first_.end(),
                 "a mini-batch that does not start with its first micro-batch");
    action.first_natural = first->second;
    if (action.act == Act::update) {
      ++updates_[action.chunk];
    }
  }

 private:
  std::map<std::int32_t, std::int64_t> updates_;
  std::map<std::pair<std::int32_t, std::int64_t>, std::int64_t> first_;  // (chunk, batch)
};

Action later(Action action, std::int64_t batches) {
  action.batch += batches;
  action.natural += batches;
  action.first_natural += batches;
  return action;
}

/// Unrolls as many periods as it takes for every clamp at step 0 to be past, then annotates all.
Sequence annotate(Sequence raw) {
  std::int64_t ahead = 0;  // mini-batches that the period's forwards are ahead of its update
  std::int64_t updated = 0;
  for (const Action& a : raw.period) {
    if (a.act == Act::update) {
      updated = a.batch;
    }
  }
  for (const Action& a : raw.period) {
    ahead = std::max(ahead, a.batch - updated);
  }
  Annotator annotator;
  Sequence out;
  out.prologue = raw.prologue;
  for (std::int64_t r = 0; r < ahead + 1; ++r) {
    for (const Action& a : raw.period) {
      out.prologue.push_back(later(a, r));
    }
  }
  for (const Action& a : raw.period) {
    out.period.push_back(later(a, ahead + 1));
  }
  for (Action& a : out.prologue) {
    annotator.annotate(a);
  }
  for (Action& a : out.period) {
    annotator.annotate(a);
  }
  return out;
}

struct Started {
  Action action;
  double start;  // an update's: of the action before it
};

/// The actions of a chunk's first `batches` mini-batches, with their times in `timeline`.
std::vector<Started> started(const Schedule& schedule,
                             const Timeline& timeline,
                             std::int32_t chunk,
                             std::int64_t batches) {
  const auto at = static_cast<std::size_t>(chunk);
  std::vector<Started> all;
  auto interval = timeline.stages[at].begin();
  for (std::uint64_t i = 0;; ++i) {
    const Action action = schedule.stages[at].at(i);
    if (action.batch >= batches) {
      continue;
    }
    if (action.act == Act::update) {
      all.push_back({action, all.back().start});
      if (action.batch + 1 == batches) {
        return all;
      }
    } else {
      all.push_back({action, (interval++)->start});
    }
  }
}

/// The sequences of stages that each have the chunks that `placement` gives them, from `deep`, in
/// which each chunk is a stage. What an action needs starts before it there, so that no stage can
/// wait for one that waits for it.
std::vector<Sequence> merge(const Schedule& deep,
                            const std::vector<std::int32_t>& placement,
                            std::int32_t stages) {
  // A flushed mini-batch is like the next, and ends before it begins. Where nothing is flushed,
  // all have the same distance from the next as soon as the pipe is full: then comes a period.
  const std::int64_t settled =
      deep.flushed ? 0 : deep.options.synchronous_batches + 2 * deep.delay_max + 2;
  const std::int64_t batches = deep.flushed ? 1 : settled + 2;
  const std::vector<ChunkTimes> alike(
      placement.size(), {.forward = 1, .input_gradient = 0.5, .weight_gradient = 0.5});
  const Timeline timeline = simulate(deep, alike, batches);
  double begin = 0;
  double end = std::numeric_limits<double>::infinity();
  for (const Interval& i : timeline.stages.front()) {
    if (i.action.act == Act::forward && i.action.micro_batch == 0 && !deep.flushed) {
      begin = i.action.batch == settled ? i.start : begin;
      end = i.action.batch == settled + 1 ? i.start : end;
    }
  }
  std::vector<std::vector<Started>> by_stage(static_cast<std::size_t>(stages));
  for (std::int32_t c = deep.chunks - 1; c >= 0; --c) {  // those near the loss go first
    auto& all = by_stage[static_cast<std::size_t>(placement[static_cast<std::size_t>(c)])];
    const std::vector<Started> own = started(deep, timeline, c, batches);
    all.insert(all.end(), own.begin(), own.end());
  }
  std::vector<Sequence> sequences;
  for (std::vector<Started>& all : by_stage) {
    std::stable_sort(all.begin(), all.end(), [](const Started& a, const Started& b) {
      return a.start < b.start;
    });
    Sequence& sequence = sequences.emplace_back();
    for (const Started& s : all) {
      if (s.start < end) {
        (s.start < begin ? sequence.prologue : sequence.period).push_back(s.action);
      }
    }
  }
  return sequences;
}

/// The greatest distance of a forward, by chunk.
std::vector<std::int64_t> delays(const Schedule& schedule) {
  std::vector<std::int64_t> delay(static_cast<std::size_t>(schedule.chunks));
  for (const Sequence& sequence : schedule.stages) {
    for (const auto* part : {&sequence.prologue, &sequence.period}) {
      for (const Action& a : *part) {
        if (a.act == Act::forward) {
          auto& greatest = delay[static_cast<std::size_t>(a.chunk)];
          greatest = std::max(greatest, a.distance());
        }
      }
    }
  }
  return delay;
}

/// By a schedule's own rule, without a table.
Schedule in_turn(const Entry& entry, const ScheduleOptions& options) {
  Schedule schedule;
  schedule.options = options;
  schedule.flushed = entry.flushed;
  schedule.chunks = options.stages * options.chunks_per_stage;
  for (std::int32_t c = 0; c < schedule.chunks; ++c) {
    schedule.placement.push_back(c % options.stages);
  }
  for (std::int32_t k = 0; k < options.stages; ++k) {
    SequenceBuilder builder(schedule.options, k);
    entry.write(builder);
    schedule.stages.push_back(annotate(std::move(builder.sequence)));
  }
  schedule.delay = delays(schedule);
  schedule.delay_max = *std::max_element(schedule.delay.begin(), schedule.delay.end());
  return schedule;
}

Result<void> check_placement(const ScheduleOptions& options) {
  const auto refuse = [](const std::string& why) {
    return Error{ErrorKind::usage, "pipeline.stage_of: " + why};
  };
  if (options.name == "interleaved") {
    return refuse(
        "interleaved gives chunks to stages in turn; leave it empty, or choose another "
        "pipeline.schedule");
  }
  std::vector<bool> busy(static_cast<std::size_t>(options.stages));
  for (const std::int32_t stage : options.stage_of) {
    if (stage < 0 || stage >= options.stages) {
      return refuse(concat("there is no stage ",
                           stage,
                           "; with pipeline.stages ",
                           options.stages,
                           " they are numbered from 0 to ",
                           options.stages - 1));
    }
    busy[static_cast<std::size_t>(stage)] = true;
  }
  if (const auto idle = std::find(busy.begin(), busy.end(), false); idle != busy.end()) {
    return refuse(concat("stage ",
                         idle - busy.begin(),
                         " of pipeline.stages ",
                         options.stages,
                         " has no chunk; each stage needs one"));
  }
  return {};
}

}  // namespace

std::string to_string(const Action& action) {
  static constexpr std::string_view kLetters = "FBIWU";
  std::string text(1, kLetters[static_cast<std::size_t>(action.act)]);
  text += "(" + std::to_string(action.batch);
  if (action.act != Act::update) {
    text += "," + std::to_string(action.micro_batch);
  }
  return text + ")@" + std::to_string(action.chunk);
}

Action Sequence::at(std::uint64_t index) const {
  if (index < prologue.size()) {
    return prologue[index];
  }
  const std::uint64_t i = index - prologue.size();
  return later(period[i % period.size()], static_cast<std::int64_t>(i / period.size()));
}

Action Schedule::forward_of(std::int32_t chunk,
                            std::int64_t batch,
                            std::int32_t micro_batch) const {
  const Sequence& sequence = stages[static_cast<std::size_t>(stage_of(chunk))];
  const auto is_it = [&](const Action& a) {
    return a.act == Act::forward && a.chunk == chunk && a.micro_batch == micro_batch;
  };
  for (const Action& a : sequence.prologue) {
    if (is_it(a) && a.batch == batch) {
      return a;
    }
  }
  for (const Action& a : sequence.period) {
    if (is_it(a) && a.batch <= batch) {
      return later(a, batch - a.batch);
    }
  }
  TROUPE_CHECK(false, "no forward of ", batch, ", ", micro_batch, " on chunk ", chunk);
}

const std::vector<SchedulePaper>& schedule_papers() {
  static const std::vector<SchedulePaper> papers = [] {
    std::vector<SchedulePaper> all;
    for (const Entry& entry : entries()) {
      all.push_back(entry.paper);
    }
    return all;
  }();
  return papers;
}

Result<Schedule> make_schedule(const ScheduleOptions& options) {
  const auto entry = std::find_if(entries().begin(), entries().end(), [&](const Entry& e) {
    return e.paper.name == options.name;
  });
  TROUPE_CHECK(entry != entries().end(), "[make_schedule] no schedule '", options.name, "'");
  const bool interleaves = options.name == "interleaved";
  if (interleaves && options.micro_batches % options.stages != 0) {
    return Error{ErrorKind::usage,
                 concat("pipeline.schedule: interleaved works in groups of K micro-batches, so "
                        "pipeline.micro_batches (",
                        options.micro_batches,
                        ") must be a multiple of pipeline.stages (",
                        options.stages,
                        ")")};
  }
  ScheduleOptions resolved = options;
  resolved.chunks_per_stage = interleaves ? options.chunks_per_stage : 1;
  if (!options.stage_of.empty()) {
    if (auto sensible = check_placement(options); !sensible) {
      return sensible.error();
    }
    resolved.stages = static_cast<std::int32_t>(options.stage_of.size());
  }
  Schedule schedule = in_turn(*entry, resolved);
  if (!options.stage_of.empty()) {
    schedule.stages = merge(schedule, options.stage_of, options.stages);
    schedule.placement = options.stage_of;
    schedule.options.stages = options.stages;
  }
  // Enough mini-batches that every stage has reached its steady state: what can stall does so by
  // then.
  const std::int64_t filling =
      options.stage_of.empty() ? 2 * options.stages : 2 * schedule.chunks + schedule.delay_max;
  if (auto checked = check_schedule(schedule, options.synchronous_batches + filling + 4);
      !checked) {
    return checked.error();
  }
  return schedule;
}

Result<void> check_schedule(const Schedule& schedule, std::int64_t batches) {
  using Key = std::tuple<Act, std::int32_t, std::int64_t, std::int32_t>;
  std::set<Key> done;
  std::map<std::int32_t, std::int64_t> updates;
  std::vector<std::uint64_t> next(schedule.stages.size());
  const auto has = [&](Act act, std::int32_t chunk, const Action& a) {
    return done.contains({act, chunk, a.batch, a.micro_batch});
  };
  const auto has_error = [&](const Action& a) {
    return a.chunk + 1 == schedule.chunks || has(Act::backward, a.chunk + 1, a) ||
           has(Act::input_gradient, a.chunk + 1, a);
  };
  // What an action lacks, or "".
  const auto lacks = [&](const Action& a) -> std::string {
    const std::string which =
        "(" + std::to_string(a.batch) + "," + std::to_string(a.micro_batch) + ")@";
    switch (a.act) {
      case Act::forward:
        return a.chunk == 0 || has(Act::forward, a.chunk - 1, a)
                   ? ""
                   : "F" + which + std::to_string(a.chunk - 1);
      case Act::backward:
      case Act::input_gradient:
        if (!has(Act::forward, a.chunk, a)) {
          return "F" + which + std::to_string(a.chunk);
        }
        return has_error(a) ? "" : "B" + which + std::to_string(a.chunk + 1);
      case Act::weight_gradient:
        return has(Act::input_gradient, a.chunk, a) ? "" : "I" + which + std::to_string(a.chunk);
      case Act::update:
        for (std::int32_t j = 0; j < schedule.options.micro_batches; ++j) {
          const Action part{.chunk = a.chunk, .batch = a.batch, .micro_batch = j};
          if (!has(Act::backward, a.chunk, part) && !has(Act::weight_gradient, a.chunk, part)) {
            return "the gradient of (" + std::to_string(a.batch) + "," + std::to_string(j) + ")@" +
                   std::to_string(a.chunk);
          }
        }
        return updates[a.chunk] == a.batch
                   ? ""
                   : "U(" + std::to_string(a.batch - 1) + ")@" + std::to_string(a.chunk);
    }
    return "";
  };
  std::int64_t left = static_cast<std::int64_t>(schedule.chunks) * batches;  // updates
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t k = 0; k < next.size(); ++k) {
      // A stage stops being looked at once it is far beyond the end.
      for (int beyond = 0; beyond < 1000;) {
        const Action a = schedule.stages[k].at(next[k]);
        if (a.batch >= batches) {
          ++next[k];
          ++beyond;
          continue;
        }
        if (!lacks(a).empty()) {
          break;
        }
        beyond = 0;
        done.insert({a.act, a.chunk, a.batch, a.act == Act::update ? 0 : a.micro_batch});
        if (a.act == Act::update) {
          ++updates[a.chunk];
          --left;
        }
        ++next[k];
        moved = true;
      }
    }
    if (left == 0) {
      return {};
    }
  }
  std::string message = "the schedule can never finish:";
  for (std::size_t k = 0; k < next.size(); ++k) {
    Action a = schedule.stages[k].at(next[k]);
    for (int i = 0; i < 1000 && a.batch >= batches; ++i) {
      a = schedule.stages[k].at(++next[k]);
    }
    const std::string missing = a.batch < batches ? lacks(a) : "";
    if (!missing.empty()) {
      message +=
          " stage " + std::to_string(k) + " waits at " + to_string(a) + " for " + missing + ";";
    }
  }
  message.back() = '.';
  return Error{ErrorKind::usage, message};
}

}  // namespace troupe
