// ad_psgd: asynchronous decentralised SGD, Lian et al. 2018, arXiv:1710.06952, algorithm 1. While a replica
// computes its gradient at its weights x~, pairs of replicas average their weights:
//
//   x_i, x_j <- (x_i + x_j) / 2 at any time;   x_i <- x_i + s_i, s_i what the optimizer moves x~_i by
//
// Replicas with even numbers are active, the others passive. After each step an active one asks a passive one,
// which it draws, and begins no other step before the answer has come; a passive one answers whenever it is
// asked and waits for nobody. So nobody waits for somebody who waits, and no two averages cross: an active
// replica's x does not change between question and answer, a passive one's is answered and averaged at once.
//
// Invariant: averages keep the sum of all x (but for those who die or end with a question under way).
#include "actors/exchange/built_in.hpp"
#include "actors/exchange/peers.hpp"
#include "kernels/random.hpp"
#include "messages/fields.hpp"
#include "runtime/schemes/peer_options.hpp"

#include "messages/bad_sender.hpp"

#include <deque>
#include <memory>
#include <utility>

namespace troupe {
namespace {

constexpr const char* kQuestion = "question";
constexpr const char* kAnswer = "answer";

class AdPsgd final : public PeerExchange {
 public:
  explicit AdPsgd(const ExchangeSeat& seat)
      : PeerExchange(seat),
        partners_(ad_psgd_partners(*seat.experiment, seat.replica)),
        random_(seat.seed, Purpose::peers, static_cast<std::uint64_t>(seat.replica)) {}

 private:
  void archive(Archive& a) override {
    PeerExchange::archive(a);
    a(x_, averaging_, asked_, questions_);
  }

  /// The averages since the step's weights were read stay: the step is added to them.
  Mix mix(const Weights& own) override {
    if (x_.empty()) {
      return {};
    }
    return [x = std::exchange(x_, {}), own = values_of(own), read = values_of(now_at())](
               Stream& stream) {
      Computed made;
      for (std::size_t s = 0; s < x.size(); ++s) {
        made.tensors.push_back(weighted_sum(stream, {{1, x[s]}, {1, own[s]}, {-1, read[s]}}));
      }
      return made;
    };
  }

  bool complete() const override { return !averaging_ && !asked_; }

  /// x is now the shard's next weights, which now_at() is from here on. Questions first: who asked waits.
  void settled(const Weights& /*weights*/, Effects& fx) override {
    serve(fx);
    std::vector<std::int32_t> living;
    for (const std::int32_t r : partners_) {
      if (makes(r, step() + 1)) {
        living.push_back(r);
      }
    }
    if (!living.empty()) {
      asked_ = living[random_.below(static_cast<std::uint64_t>(step()), living.size())];
      tell(*asked_, kQuestion, {}, values_of(now_at()), fx);
    }
  }

  void heard(Note note, Effects& fx) override {
    TROUPE_BELIEVE((note.what == kQuestion || note.what == kAnswer) && fit(note.tensors),
                 "replica ",
                 note.stamp.replica,
                 " has told weights that are none");
    if (note.what == kQuestion) {
      questions_.push_back(std::move(note));
      serve(fx);
    } else if (asked_ == note.stamp.replica) {  // else it has been given up
      average_with(std::move(note.tensors), fx);
    }
  }

  /// Answers with x as it is, and averages: one question after the other.
  void serve(Effects& fx) {
    if (questions_.empty() || averaging_ || mixing()) {
      return;
    }
    Note question = std::move(questions_.front());
    questions_.pop_front();
    tell(question.stamp.replica, kAnswer, {}, here(), fx);
    average_with(std::move(question.tensors), fx);
  }

  std::vector<Tensor> here() const { return x_.empty() ? values_of(now_at()) : x_; }

  void average_with(std::vector<Tensor> theirs, Effects& fx) {
    averaging_ = true;
    ask(
        "average",
        [mine = here(), theirs = std::move(theirs)](Stream& stream) {
          Computed made;
          for (std::size_t s = 0; s < mine.size(); ++s) {
            made.tensors.push_back(weighted_sum(stream, {{0.5, mine[s]}, {0.5, theirs[s]}}));
          }
          return made;
        },
        fx);
  }

  void worked(Computed made, Effects& fx) override {
    x_ = std::move(made.tensors);
    averaging_ = false;
    asked_.reset();
    serve(fx);
  }

  void left(std::int32_t replica, Effects& /*fx*/) override {
    if (asked_ == replica && !averaging_) {
      asked_.reset();
    }
  }

  std::vector<std::int32_t> partners_;  // that it may ask; none: it is passive
  RandomStream random_;                 // a function of the step: nothing to keep
  std::vector<Tensor> x_;               // by slice; empty: as the newest step has them
  bool averaging_ = false;
  std::optional<std::int32_t> asked_;  // replica whose answer has not been worked in
  std::deque<Note> questions_;
};

}  // namespace

namespace peer_exchanges {

ExchangeScheme ad_psgd() {
  return {
      .info =
          {.name = "ad_psgd",
           .summary =
               "no server: pairs of replicas average their weights while gradients are computed",
           .paper = "AD-PSGD: Lian et al., ICML 2018, arXiv:1710.06952"},
      .equations =
          "x_i, x_j <- (x_i + x_j) / 2 at any time; x_i <- x_i + s_i, s_i the optimizer's step "
          "of the weights that the gradient was taken at",
      .memory = "no server; x where it has been averaged since",
      .peer = [](const ExchangeSeat& seat) { return std::make_unique<AdPsgd>(seat); },
      .no_codec = "its replicas tell one another whole weights, and no codec is wired to them",
      .copies_sent = copies_of_pairs};
}

}  // namespace peer_exchanges

}  // namespace troupe
