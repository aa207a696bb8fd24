#include "apps/conformance/replicas.hpp"

#include "apps/cli/text.hpp"
#include "apps/conformance/kits.hpp"
#include "kernels/stream.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace troupe::conformance {
namespace {

/// No run of kReplicaUpdates comes near: a rule that takes nothing would go on for ever.
constexpr int kSecondsMax = 100'000;
/// Of the clock, whether to go on: one in some hundred messages. A rule that asks to be asked again
/// at once would stay at one time for ever.
constexpr int kQuestionsMax = 1000;

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

/// Whether both have the same slices: fragments (Decoupled DiLoCo) have others.
bool alike(const RunResult& a, const RunResult& b) {
  const auto same = [](const Weights& x, const Weights& y) {
    return std::equal(
        x.begin(), x.end(), y.begin(), y.end(), [](const Slice& one, const Slice& other) {
          return one.values.shape() == other.values.shape();
        });
  };
  return std::equal(a.weights.begin(), a.weights.end(), b.weights.begin(), b.weights.end(), same);
}

/// |a - b| / |b|, Euclidean, over all weights, of two that are alike.
double distance(const RunResult& a, const RunResult& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t chunk = 0; chunk < b.weights.size(); ++chunk) {
    for (std::size_t slice = 0; slice < b.weights[chunk].size(); ++slice) {
      const std::vector<double> x = to_host(a.weights[chunk][slice].values);
      const std::vector<double> y = to_host(b.weights[chunk][slice].values);
      for (std::size_t i = 0; i < y.size(); ++i) {
        difference += (x[i] - y[i]) * (x[i] - y[i]);
        size += y[i] * y[i];
      }
    }
  }
  return std::sqrt(difference / size);
}

}  // namespace

Result<Blueprint> replicas_blueprint(const Assignments& assignments) {
  return blueprint_of(
      kTask,
      with({concat("stop.updates=", kReplicaUpdates), concat("stop.seconds=", kSecondsMax)},
           assignments));
}

ReplicaTrial run_replicas(const Assignments& assignments, const std::vector<Death>& deaths) {
  ReplicaTrial t;
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
    t.trouble = concat("would not end: ", updates, " of ", kReplicaUpdates, " updates were made");
  } else if (t.result.exit_code != 0 || !t.result.cause.empty()) {
    t.trouble = t.result.cause;
  } else if (updates < kReplicaUpdates) {
    t.trouble = concat(
        "only ", updates, " of ", kReplicaUpdates, " updates were made in ", kSecondsMax, " s");
  }
  return t;
}

std::vector<Death> deaths_of(std::int64_t i) {
  std::vector<Death> deaths{{i % kReplicas, i / 2}};
  if (i % 2 == 1) {
    deaths.push_back({(i + 1) % kReplicas, (5 * i) % 7});
  }
  return deaths;
}

std::string deaths_text(const std::vector<Death>& deaths) {
  return concat(deaths.size() == 1 ? "a replica" : "two replicas",
                " died, the first at its mini-batch ",
                deaths.front().batch);
}

Finding one_is_plain(Assignments assignments) {
  assignments.emplace_back("replicas.count=1");
  if (const auto one = replicas_blueprint(assignments); !one) {
    return {"identity", true, "not for one replica: " + one.error().message, false};
  }
  const ReplicaTrial own = run_replicas(assignments);
  if (!own.trouble.empty()) {
    return {"identity", false, "one replica: " + own.trouble};
  }
  double least = std::numeric_limits<double>::infinity();
  std::string nearest_rule;
  for (const char* rule : {"momentum", "nesterov", "sgd"}) {
    const ReplicaTrial plain = run_replicas({concat("optimizer.rule=", rule)});
    if (plain.result.summary.weights_sha256 == own.result.summary.weights_sha256) {
      return {"identity", true, concat("one replica: optimizer.rule ", rule, ", bit for bit")};
    }
    if (!alike(own.result, plain.result)) {
      return {"identity",
              true,
              "one replica: its weights are in other slices than a plain optimizer's",
              false};
    }
    if (const double off = distance(own.result, plain.result); off < least) {
      least = off;
      nearest_rule = rule;
    }
  }
  return {"identity",
          std::isfinite(least),
          fill_in("one replica: no plain optimizer; nearest is optimizer.rule {}, whose weights "
                  "differ by {} of themselves",
                  nearest_rule,
                  number(least, "%.1e")),
          false};
}

Finding two_equal_replicas(const Assignments& assignments) {
  return two_equal([&] { return run_replicas(assignments); });
}

Finding resumes(Assignments assignments) {
  assignments.push_back(concat("record.checkpoint.every=", kReplicaUpdates / 4));
  const auto made = replicas_blueprint(assignments);
  if (!made) {
    return {"resume", false, made.error().message};
  }
  int asked = 0;
  std::vector<Checkpoint> kept;
  RunOptions options{.virtual_clock = true, .directory = {}, .interrupts = {}, .recast = {}};
  options.interrupts = [&] {
    return ++asked > kQuestionsMax ? 2 : 0;
  };
  options.kept = &kept;
  const auto whole = run_experiment(*made, options);
  if (!whole) {
    return {"resume", true, whole.error().message, false};
  }
  if (whole->exit_code != 0) {
    return {"resume", false, whole->cause};
  }
  options.kept = nullptr;
  for (const Checkpoint& checkpoint : kept) {
    asked = 0;
    options.resume = &checkpoint;
    const auto rest = run_experiment(*made, options);
    if (!rest) {
      return {"resume", false, rest.error().message};
    }
    if (const Finding equal = equal_runs(*whole, *rest); !equal.holds) {
      return {"resume", false, concat("after ", checkpoint.step, " updates: ", equal.what)};
    }
  }
  return {"resume",
          !kept.empty(),
          concat("from each of ", kept.size(), " checkpoints it ends as in one piece")};
}

}  // namespace troupe::conformance
