// The mean of one moment, where replicas move one another's weights at any time (PeerExchange::any_time): each replica's
// weights when it makes its cut, and what was told before the teller's cut and is in no weights before the hearer's. After
// Lai & Yang 1987: every Note says which cut its teller has made last, a mark how many were told before it.
//
//   the last replica has come to the step -> the evaluator cuts, and marks all -> who is marked, or hears a Note from
//   behind a cut, cuts before it hears that, and marks all -> when what was told before has come: its part of the mean
//
// Nobody waits for anything, and no weight of the training is another one for it. What a replica that dies had told counts
// as far as it has come.
#include "actors/exchange/peers.hpp"
#include "actors/pipeline/shard_jobs.hpp"
#include "messages/archive.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <utility>

namespace troupe {
namespace {

std::int64_t counted(const std::map<std::int32_t, std::int64_t>& of, std::int32_t peer) {
  const auto found = of.find(peer);
  return found == of.end() ? 0 : found->second;
}

}  // namespace

/// All have come to the step. One cut at a time; numbers of different evaluators are different ones.
void PeerExchange::begin_cut(std::int64_t step, Effects& fx) {
  for (const auto& [other, gathering] : gatherings_) {
    if (gathering.cut > 0) {
      return;
    }
  }
  Gathering& gathering = gatherings_.at(step);
  for (std::size_t r = 0; r < alive_.size(); ++r) {
    if (alive_[r]) {
      gathering.missing.insert(static_cast<std::int32_t>(r));
    }
  }
  const auto all = static_cast<std::int64_t>(alive_.size());
  gathering.cut = (std::max(gathering.known, cut_.number) / all + 1) * all + seat_.replica;
  cut(gathering.cut, seat_.replica, step, fx);
}

void PeerExchange::cut(std::int64_t number, std::int32_t to, std::int64_t step, Effects& fx) {
  cut_ = {.number = number,
          .open = true,
          .step = step,
          .to = to,
          .here = here(),
          .under_way = under_way(),
          .came = came_};
  for (std::size_t r = 0; r < alive_.size(); ++r) {
    if (alive_[r] && static_cast<std::int32_t>(r) != seat_.replica) {
      cut_.missing.insert(static_cast<std::int32_t>(r));
      fx.send(seat_.peers[r],
              Note{.stamp = {seat_.replica, seat_.chunk, step, 0},
                   .what = kCut,
                   .numbers = {static_cast<double>(number),
                               static_cast<double>(counted(told_, static_cast<std::int32_t>(r))),
                               static_cast<double>(to)}});
    }
  }
  close_cut(fx);
}

void PeerExchange::marked(const Note& mark, Effects& fx) {
  const bool sound = mark.numbers.size() == 3 && mark.numbers[0] > 0 && mark.numbers[0] < 0x1p53 &&
                     mark.numbers[1] >= 0 && mark.numbers[1] < 0x1p53 && mark.numbers[2] >= -1 &&
                     mark.numbers[2] < static_cast<double>(alive_.size());
  TROUPE_BELIEVE(sound, "replica ", mark.stamp.replica, " has sent an unusable mark");
  const auto number = static_cast<std::int64_t>(mark.numbers[0]);
  const auto to = static_cast<std::int32_t>(mark.numbers[2]);
  if (number > cut_.number) {
    cut(number, to, mark.stamp.batch, fx);
  }
  if (number != cut_.number) {
    return;
  }
  cut_.due[mark.stamp.replica] = static_cast<std::int64_t>(mark.numbers[1]);
  if (to >= 0) {
    cut_.to = to;
    cut_.step = mark.stamp.batch;
  }
  strike_off(mark.stamp.replica, fx);
}

/// A Note of the exchange has come, which is about to be heard.
void PeerExchange::count(Note& note, Effects& fx) {
  const std::int32_t from = note.stamp.replica;
  double number = 0;
  if (!note.numbers.empty()) {
    number = note.numbers.back();
    note.numbers.pop_back();
  }
  if (number > static_cast<double>(cut_.number)) {
    cut(static_cast<std::int64_t>(number), -1, 0, fx);
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
  const auto due = cut_.due.find(peer);
  if (!lives(peer) || (due != cut_.due.end() && counted(cut_.came, peer) >= due->second)) {
    cut_.missing.erase(peer);
  }
  close_cut(fx);
}

/// Makes its part of the mean when all has come.
void PeerExchange::close_cut(Effects& fx) {
  if (!cut_.open || cut_.to < 0 || !cut_.missing.empty()) {
    return;
  }
  cut_.open = false;
  cut_.due.clear();
  run_computed(
      fx,
      {seat_.replica, seat_.chunk, cut_.step, 0},
      kPart,
      [here = std::exchange(cut_.here, {}),
       parts = std::exchange(cut_.under_way, {}),
       links = seat_.links,
       numbers = std::vector<double>{static_cast<double>(cut_.step),
                                     static_cast<double>(cut_.to),
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
