// ad_psgd: asynchronous decentralised SGD, Lian et al. 2018, arXiv:1710.06952, algorithm 1. While a replica
// computes its gradient at its weights x~, pairs of replicas average their weights:
//
//   x_i, x_j <- (x_i + x_j) / 2 at any time;   x_i <- x_i + s_i, s_i what the optimizer moves x~_i by
//
// Every second of the living replicas is active, from the first on, the others passive. After each step an active one
// asks a passive one, which it draws, and begins no other step before the answer has come; everybody answers whenever
// it is asked, so that nobody waits for somebody who waits. An active replica's x does not change between question and
// answer, a passive one's is answered and averaged at once.
//
// When replicas die their places are taken by others, and an active one may become passive. As not all hear of it at
// once, one that has asked may then be asked itself. It answers all the same, and what its own answer moves it by
// counts from the x that it has told:  x <- x + (answer - told) / 2, which is the mean where x has not changed.
//
// Invariant: averages keep the sum of all x (but for those who die with a question under way). Also one that has come
// to its end is asked and answers; what that moves is in the mean of all, and in no weights of its own.
#include "actors/exchange/built_in.hpp"
#include "actors/exchange/peers.hpp"
#include "kernels/check.hpp"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/schemes/exchanges/peer_options.hpp"

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
        pairs_(pair_graph(*seat.experiment)),
        random_(seat.seed, Purpose::peers, static_cast<std::uint64_t>(seat.replica)) {}

 private:
  void archive(Archive& a) override {
    PeerExchange::archive(a);
    a(x_, moves_, asked_, told_, answer_, questions_);
    if (a.reading()) {
      expect_sound();
    }
  }

  void expect_sound() const {
    expect_values(x_);
    expect_values(told_);
    expect_values(answer_);
    expect_archived(moves_.empty() || moves_.size() == 2, "the state has an unusable average");
    for (const auto& [factor, x] : moves_) {
      expect_archived(fit(x), "the state has an unusable average");
    }
    if (asked_) {
      expect_replica(*asked_);
    }
    for (const Note& question : questions_) {
      expect_replica(question.stamp.replica);
      expect_archived(fit(question.tensors), "the state has an unusable question");
    }
  }

  /// The averages since the step's weights were read stay: the step is added to them.
  Mix mix(const Weights& own) override {
    if (x_.empty()) {
      return {};
    }
    return [x = x_, own = values_of(own), read = values_of(now_at())](Stream& stream) {
      Computed made;
      for (std::size_t s = 0; s < x.size(); ++s) {
        made.tensors.push_back(weighted_sum(stream, {{1, x[s]}, {1, own[s]}, {-1, read[s]}}));
      }
      return made;
    };
  }

  bool complete() const override { return moves_.empty() && !(asked_ && lives(*asked_)); }

  /// x is now the shard's next weights, which now_at() is from here on. Questions first: who asked waits.
  void settled(const Weights& /*weights*/, Effects& fx) override {
    x_.clear();
    asked_.reset();
    told_.clear();
    go_on(fx);
    asked_ = partner();
    if (asked_) {
      told_ = moves_.empty() ? std::vector<Tensor>{} : x();
      tell(*asked_, kQuestion, {}, x(), fx);
    }
  }

  /// Whom it asks after this step; nobody: it is passive, or alone.
  std::optional<std::int32_t> partner() const {
    return pairs_.partner(
        seat().replica, gone_by(step()), gone_by(step() + 1), [&](std::uint64_t among) {
          return random_.below(static_cast<std::uint64_t>(step()), among);
        });
  }

  /// Who may ask it. Whoever asks all the same, because others have died, is answered.
  Hearers minding_the_end_of_all() const override {
    return pairs_.askers(seat().replica, gone_by(step()));
  }

  void heard(Note note, Effects& fx) override {
    TROUPE_BELIEVE((note.what == kQuestion || note.what == kAnswer) && fit(note.tensors),
                   fill_in("replica {} has sent unusable weights", note.stamp.replica));
    if (note.what == kQuestion) {
      questions_.push_back(std::move(note));
    } else if (asked_ == note.stamp.replica) {  // else it has been given up
      answer_ = std::move(note.tensors);
    }
    go_on(fx);
  }

  /// One average after the other. A question is answered with x as it is, and averaged.
  void go_on(Effects& fx) {
    if (!moves_.empty() || mixing()) {
      return;
    }
    if (!answer_.empty()) {
      move(moves_by(std::exchange(answer_, {})), kAnswer, told_.empty(), fx);
    } else if (!questions_.empty()) {
      Note question = std::move(questions_.front());
      questions_.pop_front();
      tell(question.stamp.replica, kAnswer, {}, x(), fx);
      if (asked_ && told_.empty()) {
        told_ = x();
      }
      move({{-0.5, x()}, {0.5, std::move(question.tensors)}}, kQuestion, true, fx);
    }
  }

  std::vector<Tensor> x() const { return x_.empty() ? values_of(now_at()) : x_; }

  /// What an answer moves x by.
  Parts moves_by(std::vector<Tensor> answer) const {
    return {{-0.5, told_.empty() ? x() : told_}, {0.5, std::move(answer)}};
  }

  /// `by`: half of the way from one x to another. `mean`: from x as it is.
  void move(Parts by, const char* what, bool mean, Effects& fx) {
    moves_ = std::move(by);
    ask(
        what,
        [x = x(), by = moves_, mean](Stream& stream) {
          Computed made;
          for (std::size_t s = 0; s < x.size(); ++s) {
            std::vector<Term> terms{{0.5, x[s]}, {0.5, by[1].second[s]}};
            if (!mean) {
              terms = {{1, x[s]}, {-0.5, by[0].second[s]}, {0.5, by[1].second[s]}};
            }
            made.tensors.push_back(weighted_sum(stream, terms));
          }
          return made;
        },
        fx);
  }

  void worked(Computed made, Effects& fx) override {
    TROUPE_CHECK(fit(made.tensors), "[AdPsgd] something else than a job makes");
    x_ = std::move(made.tensors);
    moves_.clear();
    if (made.what == kAnswer) {
      asked_.reset();
      told_.clear();
    }
    go_on(fx);
  }

  bool any_time() const override { return true; }

  std::vector<Tensor> here() const override { return x(); }

  Parts under_way() const override {
    Parts all = moves_;
    if (!answer_.empty()) {
      const Parts more = moves_by(answer_);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  Parts brought_by(const Note& note) const override {
    return note.what == kAnswer && asked_ == note.stamp.replica ? moves_by(note.tensors) : Parts{};
  }

  PairGraph pairs_;
  RandomStream random_;                // a function of the step: nothing to keep
  std::vector<Tensor> x_;              // by slice; empty: as the newest step has them
  Parts moves_;                        // that a job adds to x; empty: none is under way
  std::optional<std::int32_t> asked_;  // replica whose answer has not been worked in
  std::vector<Tensor> told_;           // x of the question, where it has changed since
  std::vector<Tensor> answer_;         // that has come while another average was made
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
