#include "apps/conformance/replicas.hpp"

#include "kernels/check.hpp"

#include <memory>
#include <stdexcept>
#include <utility>

namespace troupe::conformance {
namespace {

constexpr std::int64_t kUpdates = 120;
/// No run of kUpdates comes near: a rule that takes nothing would go on for ever.
constexpr int kSecondsMax = 100'000;
/// Of the clock, whether to go on: one in some hundred messages. A rule that asks to be asked again
/// at once would stay at one time for ever.
constexpr int kQuestionsMax = 1000;

/// One stage a replica, whose times vary, so that no two push at one time.
constexpr const char* kTask = R"(
  model { mlp { hidden: [8] activation: tanh } }
  data { batch_size: 8 teacher { inputs: 12 outputs: 4 hidden: 16 train: 512 test: 8 } }
  optimizer { rule: momentum learning_rate: 0.005 momentum: 0.9 }
  pipeline { stages: 1 schedule { one_f_one_b {} } weights { latest {} } }
  clock {
    forward { seconds: 1 gamma { shape: 4 } }
    input_gradient { seconds: 0 }
    weight_gradient { seconds: 0 }
    update { seconds: 0.02 }
  }
  record { evaluate: false order: true weights: false }
)";

/// Does what the stage does, until its time has come.
class Mortal final : public Machine {
 public:
  Mortal(std::unique_ptr<Machine> stage, std::int64_t batch)
      : stage_(std::move(stage)), batch_(batch) {}

  void on(Message message, double now, Effects& effects) override {
    stage_->on(std::move(message), now, effects);
    for (const Run& run : effects.runs) {
      if (run.work != Work::unmodelled && run.stamp.batch >= batch_) {
        throw std::runtime_error("it was its turn to die");
      }
    }
  }

  std::string waits_for() const override { return stage_->waits_for(); }

 private:
  std::unique_ptr<Machine> stage_;
  std::int64_t batch_;
};

void doom(Cast& cast, const std::vector<Death>& deaths) {
  for (const Death& death : deaths) {
    for (Cast::Member& member : cast.members) {
      if (member.replica == death.replica && member.name.starts_with("stage-")) {
        member.machine = std::make_unique<Mortal>(std::move(member.machine), death.batch);
      }
    }
  }
}

}  // namespace

Result<Blueprint> replicas_blueprint(const Assignments& assignments) {
  Assignments all{concat("stop.updates=", kUpdates), concat("stop.seconds=", kSecondsMax)};
  all.insert(all.end(), assignments.begin(), assignments.end());
  return blueprint_of(kTask, all);
}

ReplicasTrial run_replicas(const Assignments& assignments, const std::vector<Death>& deaths) {
  ReplicasTrial t;
  auto made = replicas_blueprint(assignments);
  if (!made) {
    t.trouble = made.error().message;
    return t;
  }
  int asked = 0;
  RunOptions options{.virtual_clock = true, .directory = {}, .interrupts = {}, .recast = {}};
  options.interrupts = [&] {
    return ++asked > kQuestionsMax ? 2 : 0;
  };
  options.tee = &t.seen;
  options.recast = [&](Cast& cast) {
    doom(cast, deaths);
  };
  auto ran = run_experiment(*made, options);
  if (!ran) {
    t.trouble = ran.error().message;
    return t;
  }
  t.result = *std::move(ran);
  const std::int64_t updates = t.result.summary.updates;
  if (asked > kQuestionsMax) {
    t.trouble = concat("would not end: ", updates, " of ", kUpdates, " updates were made");
  } else if (t.result.exit_code != 0 || !t.result.cause.empty()) {
    t.trouble = t.result.cause;
  } else if (updates < kUpdates) {
    t.trouble =
        concat("only ", updates, " of ", kUpdates, " updates were made in ", kSecondsMax, " s");
  }
  return t;
}

}  // namespace troupe::conformance
