// troupe with one machine more: when the training loss no longer falls, it halves the learning rate.
//
//   last stage of each replica --Note "loss"--> plateau --ScaleRate--> shards, servers
#include <apps/cli/program.hpp>
#include <kernels/stream.hpp>
#include <messages/archive.hpp>
#include <runtime/system/extension.hpp>

#include <cmath>
#include <iostream>
#include <memory>
#include <vector>

using namespace troupe;

namespace {
class Plateau final : public ExtensionMachine<Plateau> {
 public:
  explicit Plateau(const ExtensionContext& c)
      : window_(c.options.number("window")),
        least_(c.options.number("least")),
        servers_(c.servers) {
    for (const auto& of_replica : c.shards) {
      shards_.insert(shards_.end(), of_replica.begin(), of_replica.end());
    }
  }

  void archive(Archive& a) override { a(sum_, heard_, best_, factor_); }

  using ExtensionMachine::handle;  // of what it is told otherwise: nothing

  /// The losses of a micro-batch: their sum and number.
  void handle(const Note& note, double /*now*/, Effects& fx) {
    sum_ += to_host(note.tensors[0])[0] / note.numbers[0];
    if (++heard_ < window_) {
      return;
    }
    const double mean = sum_ / heard_;
    sum_ = heard_ = 0;
    if (std::isinf(best_) || mean < best_ * (1 - least_)) {
      best_ = mean;
      return;
    }
    factor_ /= 2;
    std::cerr << "plateau: the loss is " << mean << "; the rate is now times " << factor_ << '\n';
    for (const auto& shard : shards_) {
      fx.send(shard, ScaleRate{factor_});
    }
    for (const auto& server : servers_) {
      fx.send(server, ScaleRate{factor_});
    }
  }

 private:
  const double window_;  // micro-batches that a mean is of
  const double least_;   // share by which it has to fall
  std::vector<Ref<ShardRole>> shards_;
  std::vector<Ref<ServerRole>> servers_;
  double sum_ = 0;
  double heard_ = 0;
  double best_ = INFINITY;
  double factor_ = 1;
};

void join(const ExtensionContext& c) {
  const Ref<ExtensionRole> plateau = add_machine(c.cast, "plateau", std::make_unique<Plateau>(c));
  for (const auto& of_replica : c.stages) {
    overhear(c.cast, of_replica.back().id, [plateau](double /*now*/, Effects& done) {
      for (const RecordEntry& record : done.records) {
        if (const auto* loss = std::get_if<LossRecord>(&record)) {
          done.send(plateau,
                    Note{.stamp = loss->stamp,
                         .what = "loss",
                         .numbers = {static_cast<double>(loss->rows)},
                         .tensors = {loss->result}});
        }
      }
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto made = register_extension(
      {.info = {.name = "plateau",
                .summary = "halves the learning rate whenever the training loss no longer falls",
                .options = {{.name = "window",
                             .doc = "micro-batches that a mean loss is of",
                             .number = 100,
                             .at_least = 1},
                            {.name = "least",
                             .doc = "share by which the mean has to fall",
                             .number = 0.02,
                             .at_least = 0,
                             .at_most = 1}}},
       .join = join});
  std::cerr << (made ? "" : made.error().message + '\n');
  return made ? run_command_line(argc, argv) : 2;
}
