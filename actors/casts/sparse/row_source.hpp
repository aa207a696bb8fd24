// Leads a run of sparse Hogwild: lets the workers go on, evaluates the buffer where they have all
// come to an evaluation's step, and ends the run. It is the cast's director.
//
//   row source --Advance--> row worker --Advanced--> row source
//
// Invariants: no worker begins a mini-batch behind the next evaluation or the end before the others
// have finished all that come before it, so that an evaluation is of one step; the run ends once.
#pragma once

#include "kernels/shared_buffer.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"
#include "messages/sparse.hpp"
#include "runtime/data/sparse.hpp"
#include "runtime/system/machine.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class RowSource final : public Actor<RowSource, RowSourceRole> {
 public:
  struct Config {
    std::vector<Ref<RowWorkerRole>> workers;  // by replica
    std::shared_ptr<SharedBuffer> weights;
    std::shared_ptr<const SparseData> data;
    std::int64_t batches = 0;         // N; 0: until time or accuracy ends the run
    double seconds = 0;               // of the clock; 0: no limit
    std::int64_t evaluate_every = 0;  // mini-batches; 0: none in between
    bool evaluate = false;            // at the end
    double target_accuracy = 0;       // 0: none
    bool allow_divergence = false;
  };

  explicit RowSource(Config config);

  void handle(Start, double now, Effects& fx);
  void handle(Advanced m, double now, Effects& fx);
  void handle(Halt, double now, Effects& fx);
  void handle(Down m, double now, Effects& fx);
  void handle(Diverged m, double now, Effects& fx);
  void handle(Ran<RowsLooked> m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  void go_on(double now, Effects& fx);
  void allow(Effects& fx);
  void look(bool evaluate, Effects& fx);
  void finish(Ending ending, Effects& fx);

  Config c_;
  std::vector<std::int64_t> reached_;  // by replica: its mini-batches before this one are done
  std::int64_t allowed_ = 0;
  std::optional<std::int64_t> end_;
  std::int64_t evaluated_ = 0;  // step of the last evaluation
  bool looking_ = false;        // a job of its own runs
  bool finished_ = false;
};

}  // namespace troupe
