// strom: every replica tells every other one what its steps move, by way of replicas.codec.up, and works in what
// it has been told before its next step. Nobody waits. Strom, Interspeech 2015:
//
//   r <- r + s, s what the optimizer moves x by;  q = decode(encode(r)),  r <- r - q;  x <- x + q + sum of theirs
//
// What a message leaves out stays in r for the next (codec.feedback), at its sender alone: all replicas add up
// the same messages, each in its own order, and differ by those under way. Without a codec q is s. A replica
// that dies leaves the others apart by its last messages, of which some may not have come.
#include "actors/exchange/built_in.hpp"
#include "actors/exchange/link_states.hpp"
#include "actors/exchange/peers.hpp"
#include "kernels/check.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/exchanges/peer_options.hpp"

#include <memory>
#include <utility>

namespace troupe {
namespace {

constexpr const char* kMove = "move";

class Strom final : public PeerExchange {
 public:
  explicit Strom(const ExchangeSeat& seat) : PeerExchange(seat), states_(seat.links.size()) {}

 private:
  void archive(Archive& a) override {
    PeerExchange::archive(a);
    a(states_, said_, letters_, worked_in_);
    if (a.reading()) {
      expect_links(states_);
      for (const std::vector<Note>* const letters : {&letters_, &worked_in_}) {
        for (const Note& letter : *letters) {
          expect_letter(letter.tensors);
        }
      }
    }
  }

  void heard(Note note, Effects& /*fx*/) override {
    TROUPE_BELIEVE(
        note.what == kMove, "replica ", note.stamp.replica, " has sent an unusable move");
    check_letter(note, "move");
    letters_.push_back(std::move(note));
  }

  /// Makes the next weights, by slice the message, and what the links keep.
  Mix mix(const Weights& own) override {
    TROUPE_CHECK(states_.size() == seat().links.size(), "[Strom] a job has what the links keep");
    worked_in_ = std::exchange(letters_, {});
    return [own = values_of(own),
            before = values_of(now_at()),
            letters = worked_in_,
            states = std::exchange(states_, {}),
            links = seat().links](Stream& stream) mutable {
      Computed made;
      std::vector<Tensor> messages;
      for (std::size_t s = 0; s < own.size(); ++s) {
        Tensor move = weighted_sum(stream, {{1, own[s]}, {-1, before[s]}});
        Tensor said = move;
        const auto decode = [&](const Tensor& message) {
          return links.empty() ? message
                               : decoded(stream, *links[s].codec, message, own[s].elements());
        };
        if (!links.empty()) {
          said = links[s].encode(stream, move, 1, states[s]);
          move = decode(said);
        }
        std::vector<Term> terms{{1, before[s]}, {1, move}};
        for (const Note& letter : letters) {
          terms.push_back({1, decode(letter.tensors[s])});
        }
        made.tensors.push_back(weighted_sum(stream, terms));
        messages.push_back(std::move(said));
      }
      made.tensors.insert(made.tensors.end(), messages.begin(), messages.end());
      for (LinkState& state : states) {
        pack(std::move(state), made);
      }
      return made;
    };
  }

  void mixed(std::vector<Tensor> more, std::vector<double> numbers) override {
    const auto slices = static_cast<std::ptrdiff_t>(now_at().size());
    TROUPE_CHECK(std::ssize(more) >= slices, "[Strom] less than a job makes");
    said_.assign(more.begin(), more.begin() + slices);
    const Computed kept{.tensors = std::move(more), .numbers = std::move(numbers)};
    states_ = unpack(kept, static_cast<std::size_t>(slices));
  }

  void settled(const Weights& /*weights*/, Effects& fx) override {
    worked_in_.clear();
    for (std::size_t r = 0; r < seat().peers.size(); ++r) {
      const auto other = static_cast<std::int32_t>(r);
      if (other != seat().replica && makes(other, step())) {
        tell(other, kMove, {}, said_, fx);
      }
    }
    said_.clear();
  }

  bool any_time() const override { return true; }

  Parts under_way() const override {
    Parts all;
    for (const auto* letters : {&worked_in_, &letters_}) {
      for (const Note& letter : *letters) {
        all.emplace_back(1, letter.tensors);
      }
    }
    return all;
  }

  Parts brought_by(const Note& note) const override { return {{1, note.tensors}}; }

  std::vector<LinkState> states_;  // by slice; empty without a codec, and while a job has them
  std::vector<Tensor> said_;       // by slice: the last message, until it is told
  std::vector<Note> letters_;      // that have come and are not worked in
  std::vector<Note> worked_in_;    // by the job of mix(), which is under way
};

}  // namespace

namespace peer_exchanges {

ExchangeScheme strom() {
  return {.info = {.name = "strom",
                   .summary = "no server: each replica tells every other one what its steps move, "
                              "and waits for nobody",
                   .paper = "Strom, Interspeech 2015"},
          .equations =
              "r <- r + s, s the optimizer's step; q = decode(encode(r)), r <- r - q; "
              "x <- x + q + sum of the others' q that have come",
          .memory = "no server; with a codec r, and messages that have come",
          .peer = [](const ExchangeSeat& seat) { return std::make_unique<Strom>(seat); },
          .staleness = staleness_of_all,
          .codec_between_peers = true,
          .copies_sent = copies_to_all};
}

}  // namespace peer_exchanges

}  // namespace troupe
