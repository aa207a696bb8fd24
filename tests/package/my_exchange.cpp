// troupe with one exchange more: GoSGD, gossip without servers (Blot, Picard, Cord & Thome 2016).
// After a step a replica may send its weights and half of its share to another one, which works them
// in after its own next step:  x <- (share x + theirs x') / (share + theirs). All shares add up to 1.
#include <actors/exchange/peers.hpp>
#include <apps/cli/program.hpp>
#include <kernels/combine.hpp>
#include <kernels/random.hpp>
#include <messages/archive.hpp>
#include <runtime/schemes/exchanges/exchange.hpp>

#include <iostream>
#include <memory>
#include <utility>
#include <vector>

using namespace troupe;

namespace {
class GoSgd final : public PeerExchange {
 public:
  explicit GoSgd(const ExchangeSeat& seat)
      : PeerExchange(seat),
        share_(1.0 / static_cast<double>(seat.peers.size())),
        random_(seat.seed, Purpose::sample, static_cast<std::uint64_t>(seat.replica)) {}

 private:
  void archive(Archive& a) override {
    PeerExchange::archive(a);
    a(share_, letters_);
  }

  void heard(Note note, Effects&) override { letters_.push_back(std::move(note)); }

  /// The replica's own step is made: what has come meanwhile is worked in, by a job on its device.
  Mix mix(const Weights& own) override {
    if (letters_.empty()) {
      return {};
    }
    const double share = share_;
    for (const Note& letter : letters_) {
      share_ += letter.numbers[0];
    }
    return [own, share, letters = std::exchange(letters_, {})](Stream& stream) {
      std::vector<Tensor> mixed;
      for (std::size_t s = 0; s < own.size(); ++s) {
        Tensor x = own[s].values;
        double sum = share;
        for (const Note& letter : letters) {
          const double kept = sum / (sum + letter.numbers[0]);
          const Tensor before = std::exchange(x, stream.allocate(x.shape()));
          combine(stream, {{kept, before}, {1 - kept, letter.tensors[s]}}, x);
          sum += letter.numbers[0];
        }
        mixed.push_back(x);
      }
      return Computed{.tensors = mixed};
    };
  }

  /// The weights of the next step are decided: now and then somebody is told.
  void settled(const Weights& weights, Effects& fx) override {
    const auto at = 2 * static_cast<std::uint64_t>(step());
    const std::uint64_t others = seat().peers.size() - 1;
    const int other =
        static_cast<int>((seat().replica + 1 + random_.below(at, others)) % (others + 1));
    if (random_.uniform(at + 1) >= seat().options.number("probability") || !makes(other, step())) {
      return;
    }
    share_ /= 2;
    std::vector<Tensor> slices;
    for (const Slice& slice : weights) {
      slices.push_back(slice.values);
    }
    tell(other, "gossip", {share_}, slices, fx);
  }

  double share_;
  RandomStream random_;  // a function of the step: nothing to keep
  std::vector<Note> letters_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto made = register_exchange(
      {.info = {.name = "gosgd",
                .summary = "gossip: now and then a replica sends its weights to another one",
                .paper = "Blot, Picard, Cord & Thome 2016, arXiv:1611.09726",
                .options = {{.name = "probability",
                             .doc = "of telling somebody after a step",
                             .number = 0.2,
                             .at_least = 0,
                             .at_most = 1}}},
       .equations = "x <- (a x + a' x') / (a + a'), a <- a + a'; the sender keeps half of its a",
       .memory = "no server",
       .peer = [](const ExchangeSeat& seat) { return std::make_unique<GoSgd>(seat); },
       .evaluated = Evaluated::mean});
  std::cerr << (made ? "" : made.error().message + '\n');
  return made ? run_command_line(argc, argv) : 2;
}
