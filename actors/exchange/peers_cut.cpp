// The mean of one moment, where replicas move one another's weights at any time (PeerExchange::any_time): each replica's
// weights when it makes its cut, and what was told before the teller's cut and is in no weights before the hearer's. After
// Lai & Yang 1987: every Note says which cut its teller has made last. How many Notes were told before it the evaluator
// gathers and hands out, so that R replicas send 3 R messages for a cut; marks from each to each would be R (R - 1).
//
//   the last replica has come to the step -> the evaluator cuts, and marks all -> who is marked, or hears a Note from
//   behind a cut, cuts before it hears that, and counts for the evaluator whom it has told how much -> when all have, each
//   learns what it is due -> when that has come: its part of the mean
//
// Nobody waits for anything, and no weight of the training is another one for it. What a replica that dies had told counts
// as far as it has come.
#include "actors/exchange/peers.hpp"
#include "actors/pipeline/shard_jobs.hpp"
#include "messages/archive.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

// More evaluations than a run has between two deaths. Of 4,096 replicas, the most, numbers come to 2^49 (may_be_cut).
constexpr std::int64_t kRoundsBetweenDeaths = std::int64_t{1} << 25;

std::int64_t count_of(const std::map<std::int32_t, std::int64_t>& of, std::int32_t peer) {
  const auto found = of.find(peer);
  return found == of.end() ? 0 : found->second;
}

/// (peer, count) behind the number of a cut, as a Note has them.
std::vector<double> numbers_of(std::int64_t cut,
                               const std::map<std::int32_t, std::int64_t>& counts) {
  std::vector<double> numbers{static_cast<double>(cut)};
  for (const auto& [peer, count] : counts) {
    numbers.push_back(peer);
    numbers.push_back(static_cast<double>(count));
  }
  return numbers;
}

/// Of a Note from outside: BadSender where these are no counts of replicas but its sender, in rising order.
std::map<std::int32_t, std::int64_t> counts_of(const Note& note, std::size_t replicas) {
  const auto whole = [](double number, double end) {
    return number >= 0 && number < end && number == std::floor(number);
  };
  bool sound =
      note.numbers.size() % 2 == 1 && note.numbers[0] > 0 && whole(note.numbers[0], 0x1p53);
  std::map<std::int32_t, std::int64_t> counts;
  for (std::size_t i = 1; sound && i < note.numbers.size(); i += 2) {
    sound = whole(note.numbers[i], static_cast<double>(replicas)) &&
            whole(note.numbers[i + 1], 0x1p53) &&
            (counts.empty() || note.numbers[i] > counts.rbegin()->first);
    if (sound) {
      counts.emplace(static_cast<std::int32_t>(note.numbers[i]),
                     static_cast<std::int64_t>(note.numbers[i + 1]));
    }
  }
  TROUPE_BELIEVE(sound, "replica ", note.stamp.replica, " has sent an unusable mark");
  return counts;
}

}  // namespace

/// All have come to the step. One cut at a time; numbers of different evaluators are different ones (evaluator_of). Who evaluates
/// in the place of one that died knows of more deaths than that one did, so that its number is the larger one, whether the
/// dead one's mark has come to any of the living or not: who has left a cut for another one has no part of it any more.
void PeerExchange::begin_cut(std::int64_t step, Effects& fx) {
  for (const auto& [other, gathering] : gatherings_) {
    if (gathering.cut > 0) {
      return;
    }
  }
  Gathering& gathering = gatherings_.at(step);
  const auto all = static_cast<std::int64_t>(alive_.size());
  const std::int64_t dead = std::count(alive_.begin(), alive_.end(), false);
  const std::int64_t round = std::max(gathering.known, cut_.number) / all + 1;
  gathering.cut = std::max(round, dead * kRoundsBetweenDeaths) * all + seat_.replica;
  const Stamp stamp{seat_.replica, seat_.chunk, step, 0};
  for (std::int32_t r = 0; r < static_cast<std::int32_t>(all); ++r) {
    if (lives(r)) {
      gathering.missing.insert(r);
      if (r != seat_.replica) {
        fx.send(seat_.peers[static_cast<std::size_t>(r)],
                Note{.stamp = stamp, .what = kCut, .numbers = numbers_of(gathering.cut, {})});
      }
    }
  }
  gathering.uncounted = gathering.missing;
  cut(gathering.cut, fx);
}

std::int32_t PeerExchange::evaluator_of(std::int64_t cut) const {
  return static_cast<std::int32_t>(cut % static_cast<std::int64_t>(alive_.size()));
}

void PeerExchange::cut(std::int64_t number, Effects& fx) {
  cut_ = {.number = number, .open = true, .here = here(), .under_way = under_way(), .came = came_};
  std::map<std::int32_t, std::int64_t> to_living = told_;
  std::erase_if(to_living, [&](const auto& to) { return !lives(to.first); });
  const std::int32_t evaluator = evaluator_of(number);
  if (evaluator == seat_.replica) {
    counted(number, seat_.replica, to_living, fx);
    return;
  }
  fx.send(seat_.peers[static_cast<std::size_t>(evaluator)],
          Note{.stamp = {seat_.replica, seat_.chunk, 0, 0},
               .what = kCounts,
               .numbers = numbers_of(number, to_living)});
}

/// `from` has told `to` before the cut.
void PeerExchange::counted(std::int64_t number,
                           std::int32_t from,
                           const std::map<std::int32_t, std::int64_t>& to,
                           Effects& fx) {
  for (auto& [step, gathering] : gatherings_) {
    if (gathering.cut == number && gathering.uncounted.erase(from) > 0) {
      for (const auto& [hearer, count] : to) {
        gathering.due[hearer].emplace(from, count);
      }
      hand_out_dues(step, gathering, fx);
      return;
    }
  }
}

/// Once all have counted, or died.
void PeerExchange::hand_out_dues(std::int64_t step, Gathering& gathering, Effects& fx) {
  if (!gathering.uncounted.empty()) {
    return;
  }
  auto dues = std::exchange(gathering.due, {});
  const std::int64_t number = gathering.cut;
  for (std::int32_t r = 0; r < static_cast<std::int32_t>(alive_.size()); ++r) {
    if (lives(r) && r != seat_.replica) {
      fx.send(seat_.peers[static_cast<std::size_t>(r)],
              Note{.stamp = {seat_.replica, seat_.chunk, step, 0},
                   .what = kDue,
                   .numbers = numbers_of(number, dues[r])});
    }
  }
  due(number, step, std::move(dues[seat_.replica]), fx);
}

/// What this replica has to hear before its part of the mean is whole.
void PeerExchange::due(std::int64_t number,
                       std::int64_t step,
                       std::map<std::int32_t, std::int64_t> counts,
                       Effects& fx) {
  if (number != cut_.number || !cut_.open || cut_.due) {
    return;
  }
  cut_.step = step;
  for (const auto& [peer, count] : counts) {
    if (lives(peer) && count_of(cut_.came, peer) < count) {
      cut_.missing.insert(peer);
    }
  }
  cut_.due = std::move(counts);
  close_cut(fx);
}

/// A Note about a cut.
void PeerExchange::heard_of_cut(const Note& note, Effects& fx) {
  TROUPE_BELIEVE(
      any_time(), "replica ", note.stamp.replica, " has sent a mark, and nothing here is cut");
  auto counts = counts_of(note, alive_.size());
  TROUPE_BELIEVE(
      may_be_cut(note.numbers[0]), "replica ", note.stamp.replica, " has sent an unusable mark");
  const auto number = static_cast<std::int64_t>(note.numbers[0]);
  if (note.what == kCounts) {
    counted(number, note.stamp.replica, counts, fx);
    return;
  }
  TROUPE_BELIEVE(evaluator_of(number) == note.stamp.replica,
                 "replica ",
                 note.stamp.replica,
                 " has sent a mark of another's cut");
  if (note.what == kDue) {
    due(number, note.stamp.batch, std::move(counts), fx);
  } else if (number > cut_.number) {
    cut(number, fx);
  }
}

/// A Note of the exchange has come, which is about to be heard.
void PeerExchange::count(Note& note, Effects& fx) {
  const std::int32_t from = note.stamp.replica;
  double number = 0;
  if (!note.numbers.empty()) {
    number = note.numbers.back();
    note.numbers.pop_back();
  }
  TROUPE_BELIEVE(may_be_cut(number), "replica ", from, " has told of an unusable cut");
  if (number > static_cast<double>(cut_.number)) {
    cut(static_cast<std::int64_t>(number), fx);
  }
  ++came_[from];
  if (cut_.open && number < static_cast<double>(cut_.number)) {
    ++cut_.came[from];
    const Parts brought = brought_by(note);
    cut_.under_way.insert(cut_.under_way.end(), brought.begin(), brought.end());
    strike_off(note.stamp.replica, fx);
  }
}

/// Something has come from `peer`, or nothing more will: closes the cut where that was the last.
void PeerExchange::strike_off(std::int32_t peer, Effects& fx) {
  if (!cut_.due) {
    return;
  }
  const auto due = cut_.due->find(peer);
  if (!lives(peer) || due == cut_.due->end() || count_of(cut_.came, peer) >= due->second) {
    cut_.missing.erase(peer);
  }
  close_cut(fx);
}

/// Makes its part of the mean when all has come.
void PeerExchange::close_cut(Effects& fx) {
  if (!cut_.open || !cut_.due || !cut_.missing.empty()) {
    return;
  }
  cut_.open = false;
  cut_.due.reset();
  run_computed(
      fx,
      {seat_.replica, seat_.chunk, cut_.step, 0},
      kPart,
      [here = std::exchange(cut_.here, {}),
       parts = std::exchange(cut_.under_way, {}),
       links = seat_.links,
       numbers = std::vector<double>{static_cast<double>(cut_.step),
                                     static_cast<double>(evaluator_of(cut_.number)),
                                     static_cast<double>(cut_.number)}](Stream& stream) {
        Computed made{.tensors = here, .numbers = numbers};
        for (std::size_t s = 0; s < here.size() && !parts.empty(); ++s) {
          std::vector<Term> terms{{1, here[s]}};
          for (const auto& [factor, told] : parts) {
            terms.push_back({factor,
                             links.empty()
                                 ? told[s]
                                 : decoded(stream, *links[s].codec, told[s], here[s].elements())});
          }
          made.tensors[s] = weighted_sum(stream, terms);
        }
        made.tensors.insert(made.tensors.end(), here.begin(), here.end());
        return made;
      },
      Lane::mark);
}

}  // namespace troupe
