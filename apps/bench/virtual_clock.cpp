#include "apps/bench/benches.hpp"
#include "apps/bench/watch.hpp"
#include "apps/topologies/cast.hpp"
#include "experiment.pb.h"
#include "messages/ran.hpp"
#include "runtime/system/agenda.hpp"
#include "runtime/system/machine.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {
namespace {

/// A machine whose jobs compute nothing but the first time: from then on each kind of job hands out what it made then. What is
/// left is the machine's own logic, the messages and the Agenda.
class Hollow final : public Machine {
 public:
  explicit Hollow(std::unique_ptr<Machine> inner) : inner_(std::move(inner)) {}

  void on(Message message, double now, Effects& fx) override {
    inner_->on(std::move(message), now, fx);
    for (Run& run : fx.runs) {
      auto& made = made_[{run.lane, run.work}];
      if (!made) {
        made = std::make_shared<std::optional<Made>>();
      }
      run.job = [made, job = std::move(run.job)](Stream& stream) {
        if (!*made) {
          *made = job(stream);
        }
        return **made;
      };
    }
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  using Made = decltype(Run::job)::result_type;

  std::unique_ptr<Machine> inner_;
  std::map<std::pair<Lane, Work>, std::shared_ptr<std::optional<Made>>> made_;
};

}  // namespace

Row virtual_clock(double seconds) {
  std::vector<double> rates;
  std::int64_t updates = 200;
  for (int round = 0; round < 4; ++round) {
    Blueprint b = bench_blueprint(
        "model { quadratic { layers: 64 } } data { batch_size: 1 none {} } optimizer { rule: sgd "
        "learning_rate: 0.001 } pipeline { stages: 64 schedule { async_one_f_one_b {} } weights { "
        "latest {} } } stop { updates: " +
        std::to_string(updates) +
        " } record { evaluate: false gap_every: 0 } clock { forward { seconds: 1 gamma {} } "
        "input_gradient { seconds: 1 gamma {} } weight_gradient { seconds: 1 } }");
    Cast cast = build_cast(b);
    for (Cast::Member& member : cast.members) {
      member.machine = std::make_unique<Hollow>(std::move(member.machine));
    }
    Watch watch;
    const TimeModel times(b.experiment.clock(), b.times, 1);
    Agenda agenda(cast, times, watch, nullptr);
    const double spent = thread_seconds_of([&] { agenda.run(); });
    const double rate = static_cast<double>(agenda.delivered()) / spent;
    if (round > 0) {
      rates.push_back(rate);
    }
    updates = std::max<std::int64_t>(
        100, static_cast<std::int64_t>(static_cast<double>(updates) / spent * seconds / 4));
  }
  return {"virtual clock, 64 workers, empty compute",
          number("%.2f M messages/s", median(rates) / 1e6),
          "",
          "",
          ">= 2 M/s"};
}

}  // namespace troupe
