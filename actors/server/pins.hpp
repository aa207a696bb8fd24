// The weights that a server keeps for evaluations and for the end of the run, by step, and who waits
// for them.
#pragma once

#include "actors/server/run_position.hpp"
#include "messages/servers.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>

namespace troupe {

class Pins {
 public:
  struct Config {
    std::int32_t chunk = 0;
    std::size_t slice = 0;
    Ref<DirectorRole> director;
    /// Pins that this server may have made before another server has made the first of them.
    std::int64_t ahead = 0;
    EvaluationPlan evaluation{};  // which steps are evaluated
    std::int64_t updates = 0;     // steps that the run was to have; 0: not known beforehand
    bool announces = false;       // the director hears of each pin: evaluations begin there
  };

  explicit Pins(Config config) : c_(config) {}

  /// More are kept than evaluations should be behind by: training waits. It never waits for an
  /// evaluation that itself waits for another server.
  bool too_many() const { return pins_.size() > kMax + static_cast<std::size_t>(c_.ahead); }

  /// Pins the steps that are evaluated, of those that an update has made since step `before`; not the
  /// last step of the run.
  void pin_due(std::int64_t before,
               const Tensor& weights,
               const RunPosition& run,
               std::int64_t version,
               Effects& fx);

  /// Keeps `weights` as those of `step` and sends them to whoever waits for them. Where the step has
  /// been pinned already, those weights stay: they are what was evaluated.
  void pin(std::int64_t step,
           const Tensor& weights,
           const RunPosition& run,
           std::int64_t version,
           Effects& fx);

  /// Answers now, or when the step is pinned. `version`: the newest, which goes into the answer.
  void pull(const PinnedPull& pull, const RunPosition& run, std::int64_t version, Effects& fx);

  /// The evaluation at `step` is over.
  void release(std::int64_t step, const RunPosition& run);
  /// Forgets what was released, once the run cannot end there any more.
  void forget_released(const RunPosition& run);

  /// Sends the weights of `step`, the last of the run, to the director: now, or when they are pinned.
  void conclude(std::int64_t step, const RunPosition& run, std::int64_t version, Effects& fx);

  void archive(auto& a) { a(pins_, pulls_, released_, conclude_at_); }

 private:
  static constexpr std::size_t kMax = 4;

  void announce(std::int64_t step, const RunPosition& run, Effects& fx);
  void answer(const PinnedPull& pull, const Tensor& weights, std::int64_t version, Effects& fx);
  void conclude_when_pinned(const RunPosition& run, std::int64_t version, Effects& fx);

  Config c_;
  std::map<std::int64_t, Tensor> pins_;   // by step
  std::deque<PinnedPull> pulls_;          // of steps that are not pinned yet
  std::optional<std::int64_t> released_;  // its pin goes as soon as it cannot be the last
  std::optional<std::int64_t> conclude_at_;
};

}  // namespace troupe
