#include "runtime/record/best_evaluation.hpp"

#include "experiment/run.pb.h"
#include "messages/sections.hpp"

namespace troupe {

BestEvaluation::Config best_evaluation_config(const proto::Experiment& experiment) {
  const proto::Stop& stop = sections::stop(experiment);
  return {.by_accuracy = stop.monitor() == proto::Stop::accuracy,
          .min_delta = stop.min_delta(),
          .patience = stop.patience()};
}

}  // namespace troupe
