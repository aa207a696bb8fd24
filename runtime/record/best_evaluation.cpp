#include "runtime/record/best_evaluation.hpp"

#include "experiment.pb.h"

namespace troupe {

BestEvaluation::Config best_evaluation_config(const proto::Experiment& experiment) {
  const proto::Stop& stop = experiment.stop();
  return {.by_accuracy = stop.monitor() == proto::Stop::accuracy,
          .min_delta = stop.min_delta(),
          .patience = stop.patience()};
}

}  // namespace troupe
