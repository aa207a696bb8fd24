// gossip by way of a codec: CHOCO-SGD, Koloskova, Stich & Jaggi 2019, arXiv:1902.00340, algorithm 2. Each replica
// keeps a copy y_j of what it knows of a neighbour's weights, and the copy y_i that its neighbours have of its
// own. What is told is how far the weights are from that copy:
//
//   q_i = encode(x_i - y_i);  y_j <- y_j + decode(q_j) for itself and its neighbours;
//   x_i <- x_i + gamma sum_j W_ij (y_j - y_i)
//
// in the paper's order (sequential) after the step s_i; with order=simultaneous x_i are the weights before the step, so
// that messages travel while the gradient is computed, and s_i is added. W is symmetric and all have the same copies,
// so that the sum over the replicas of x_i stays, whatever a message leaves out. What is left out is in the next
// x_i - y_i: nothing else is kept. All replicas start at the same weights, which are the first copies.
//
// Where the graph is made anew because replicas have died or ended, a new neighbour gets the copy y_i itself with the
// first message, once and without the codec.
//
// Invariant: a neighbour hears each message of a replica in its order, so that its copy is the replica's own.
#include "actors/exchange/gossip_rounds.hpp"
#include "actors/exchange/link_states.hpp"
#include "kernels/check.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <utility>

namespace troupe {
namespace {

constexpr const char* kDifference = "difference";

using Values = std::vector<Tensor>;                 // by slice
using Key = std::pair<std::int64_t, std::int32_t>;  // a round, and who has told something in it

class CodedGossip final : public GossipRounds {
 public:
  explicit CodedGossip(const ExchangeSeat& seat)
      : GossipRounds(seat), links_(seat.links), states_(seat.links.size()) {
    for (CodedLink& link : links_) {
      link.feedback = false;
    }
  }

 private:
  void archive(Archive& a) override {
    PeerExchange::archive(a);
    a(views_, states_, start_, own_, told_copy_, theirs_, said_, heard_now_, letters_, copies_);
    if (a.reading()) {
      expect_sound();
    }
  }

  void expect_sound() const {
    expect_links(states_);
    expect_values(start_);
    expect_values(own_);
    expect_archived(start_.empty() == own_.empty(), "the state has other slices than this run");
    for (const std::map<Key, Values>* const all : {&letters_, &copies_}) {
      for (const auto& [of, told] : *all) {
        if (all == &letters_) {
          expect_letter(told);
        } else {
          expect_archived(fit(told), "the state has an unusable copy");
        }
      }
    }
    for (const auto& [replica, copy] : theirs_) {
      expect_archived(fit(copy), "the state has an unusable copy");
    }
  }

  void stepped(const Weights& own, Effects& fx) override {
    if (start_.empty()) {
      start_ = own_ = values_of(now_at());
    }
    if (!o_.simultaneous && averages()) {
      say(own, step(), fx);
    }
  }

  void settled(const Weights& weights, Effects& fx) override {
    views_.forget_before(round());
    said_ = false;
    const std::int64_t next = step() + 1;
    if (o_.simultaneous && next % o_.period == 0) {
      say(weights, next, fx);
    }
  }

  /// `step`: at which the hearers average.
  void say(const Weights& weights, std::int64_t step, Effects& fx) {
    TROUPE_CHECK(states_.size() == links_.size(), "[CodedGossip] a job has what the links keep");
    const std::int64_t round = first_round(o_.simultaneous ? step - 1 : step);
    ask(
        "said",
        [x = values_of(weights),
         y = own_,
         links = links_,
         states = std::exchange(states_, {}),
         round = static_cast<double>(round),
         step = static_cast<double>(step)](Stream& stream) mutable {
          Computed made;
          Values after;
          for (std::size_t s = 0; s < x.size(); ++s) {
            const Tensor away = weighted_sum(stream, {{1, x[s]}, {-1, y[s]}});
            const Tensor message = links[s].encode(stream, away, 1, states[s]);
            after.push_back(moved(stream, y[s], *links[s].codec, message));
            made.tensors.push_back(message);
          }
          made.tensors.insert(made.tensors.end(), after.begin(), after.end());
          for (LinkState& state : states) {
            pack(std::move(state), made);
          }
          made.numbers.insert(made.numbers.end(), {round, step});
          return made;
        },
        fx);
  }

  /// The copy y after a message.
  static Tensor moved(Stream& stream, const Tensor& y, const Codec& codec, const Tensor& message) {
    return weighted_sum(stream, {{1, y}, {1, decoded(stream, codec, message, y.elements())}});
  }

  void worked(Computed made, Effects& fx) override {
    const std::size_t slices = own_.size();
    TROUPE_CHECK(made.tensors.size() >= 2 * slices && made.numbers.size() >= 2,
                 "[CodedGossip] less than a job makes");
    const double step = made.numbers.back();
    made.numbers.pop_back();
    const double round = made.numbers.back();
    made.numbers.pop_back();
    TROUPE_CHECK(step >= 0 && step < 0x1p53, "[CodedGossip] a step that no run has");
    TROUPE_CHECK(round >= 0 && round < 0x1p53, "[CodedGossip] a round that no run has");
    states_ = unpack(made, 2 * slices);
    const auto messages_end = made.tensors.begin() + static_cast<std::ptrdiff_t>(slices);
    const Values before = std::exchange(
        own_, Values(messages_end, messages_end + static_cast<std::ptrdiff_t>(slices)));
    said_ = true;
    const std::vector<std::int32_t> to =
        hearers(static_cast<std::int64_t>(step), static_cast<std::int64_t>(round), fx);
    for (const std::int32_t r : to) {
      Values told(made.tensors.begin(), messages_end);
      if (told_copy_ && !std::binary_search(told_copy_->begin(), told_copy_->end(), r)) {
        told.insert(told.end(), before.begin(), before.end());
      }
      tell(r, kDifference, {round}, std::move(told), fx);
    }
    told_copy_ = to;
  }

  void heard(Note note, Effects& /*fx*/) override {
    const bool sound = note.what == kDifference && note.numbers.size() == 1 &&
                       note.numbers[0] >= 0 && note.numbers[0] < 0x1p53;
    TROUPE_BELIEVE(sound, "replica ", note.stamp.replica, " has sent an unusable difference");
    const Key key{static_cast<std::int64_t>(note.numbers[0]), note.stamp.replica};
    if (const std::size_t slices = now_at().size(); note.tensors.size() == 2 * slices) {
      Values copy(note.tensors.begin() + static_cast<std::ptrdiff_t>(slices), note.tensors.end());
      TROUPE_BELIEVE(fit(copy), "replica ", note.stamp.replica, " has sent an unusable copy");
      copies_[key] = std::move(copy);
      note.tensors.resize(slices);
    }
    check_letter(note, "difference");
    letters_[key] = std::move(note.tensors);
  }

  void heard_members(std::int32_t replica,
                     std::int64_t round,
                     std::vector<std::int32_t> gone) override {
    views_.changed(replica, round, std::move(gone));
  }

  bool complete() const override {
    if (!averages()) {
      return true;
    }
    if (!said_) {
      return false;
    }
    for (const std::int32_t r : neighbours(round())) {
      // It has come so far.
      const bool tells = makes(r, o_.simultaneous ? step() - 1 : step());
      if (tells && !letters_.contains({round(), r})) {
        return false;
      }
    }
    return true;
  }

  /// What a replica has told up to this round, and the copy that it moves.
  struct Heard {
    Values copy;
    std::vector<Values> messages{};
    bool averaged = false;  // it is a neighbour: else the copy is only kept up
  };

  /// By replica; empties what it takes.
  std::map<std::int32_t, Heard> take_heard() {
    std::map<std::int32_t, Heard> all;
    const auto end = letters_.lower_bound({round() + 1, 0});
    for (auto at = letters_.begin(); at != end; at = letters_.erase(at)) {
      const std::int32_t r = at->first.second;
      const auto [heard, first] = all.try_emplace(r);
      if (const auto copy = copies_.find(at->first); copy != copies_.end()) {
        heard->second = {.copy = std::move(copy->second)};
        copies_.erase(copy);
      } else if (first) {
        heard->second.copy = theirs_.try_emplace(r, start_).first->second;
      }
      heard->second.messages.push_back(std::move(at->second));
      heard->second.averaged = at->first.first == round();
    }
    const std::vector<std::int32_t> mine = neighbours(round());
    for (auto& [r, heard] : all) {
      heard.averaged = heard.averaged && std::binary_search(mine.begin(), mine.end(), r);
    }
    return all;
  }

  /// Makes the next weights, and then the copies of those that were heard.
  Mix mix(const Weights& own) override {
    if (!averages()) {
      return {};
    }
    heard_now_.clear();
    std::erase_if(theirs_, [&](const auto& one) { return !lives(one.first); });
    std::vector<Heard> all;
    for (auto& [r, heard] : take_heard()) {
      heard_now_.push_back(r);
      all.push_back(std::move(heard));
    }
    if (all.empty()) {
      return {};
    }
    return [x = values_of(own),
            y = own_,
            all = std::move(all),
            links = links_,
            share = share(round())](Stream& stream) {
      Computed made;
      std::vector<Values> copies(all.size());
      const auto averaged =
          std::count_if(all.begin(), all.end(), [](const Heard& heard) { return heard.averaged; });
      for (std::size_t s = 0; s < x.size(); ++s) {
        std::vector<Term> terms{{1, x[s]}, {-share * static_cast<double>(averaged), y[s]}};
        for (std::size_t i = 0; i < all.size(); ++i) {
          Tensor copy = all[i].copy[s];
          for (const Values& message : all[i].messages) {
            copy = moved(stream, copy, *links[s].codec, message[s]);
          }
          copies[i].push_back(copy);
          if (all[i].averaged) {
            terms.push_back({share, copy});
          }
        }
        made.tensors.push_back(weighted_sum(stream, terms));
      }
      for (const Values& copy : copies) {
        made.tensors.insert(made.tensors.end(), copy.begin(), copy.end());
      }
      return made;
    };
  }

  void mixed(Values more, std::vector<double> /*numbers*/) override {
    TROUPE_CHECK(more.size() == heard_now_.size() * own_.size(), "[CodedGossip] copies of others");
    auto at = more.begin();
    for (const std::int32_t r : heard_now_) {
      const auto end = at + static_cast<std::ptrdiff_t>(own_.size());
      theirs_[r].assign(at, end);
      at = end;
    }
    heard_now_.clear();
  }

  std::vector<CodedLink> links_;
  std::vector<LinkState> states_;  // by slice; empty while a job has them
  Values start_;                   // what all start at; empty: no step was made yet
  Values own_;                     // what the neighbours have of these weights, once all has come
  // Who has a copy of it: told it in the last round; empty: all, who have start_
  std::optional<std::vector<std::int32_t>> told_copy_;
  std::map<std::int32_t, Values> theirs_;  // by neighbour; missing: start_
  bool said_ = false;                      // the message of this round is on its way
  std::vector<std::int32_t> heard_now_;    // whose copies the job of mix() makes
  std::map<Key, Values> letters_;
  std::map<Key, Values> copies_;  // that come with a letter, of before it
};

}  // namespace

std::unique_ptr<PeerExchange> coded_gossip(const ExchangeSeat& seat) {
  return std::make_unique<CodedGossip>(seat);
}

}  // namespace troupe
