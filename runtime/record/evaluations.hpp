// The evaluations of a run, and what was told beside them: how far replicas are from their mean, and what each is worth.
#pragma once

#include "messages/archive.hpp"
#include "messages/proto.hpp"
#include "messages/record.hpp"
#include "runtime/record/summary.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

class Evaluations {
 public:
  void add(const EvaluationRecord& record);
  void add(const ConsensusRecord& record);
  void add(const ReplicaRecord& record);

  void add(const PassedOverRecord& record) { passed_over_ += record.evaluations; }

  /// By replica, over all chunks; -1: it is gone. Empty where nobody has told.
  std::vector<double> distances_at(std::int64_t step) const;

  /// Fills in what is known of the weights of `step`.
  void summarize(std::int64_t step, const proto::Experiment& experiment, Summary& summary) const;

  void archive(Archive& a);

 private:
  template <class T>
  using BySteps = std::map<std::int64_t, T>;  // the last few

  BySteps<EvaluationRecord> all_;
  BySteps<EvaluationRecord> bests_;  // that were better than all before
  BySteps<std::map<std::int32_t, std::vector<double>>>
      consensus_;  // by chunk: ConsensusRecord::distances
  BySteps<std::map<std::int32_t, ReplicaRecord>> replicas_;
  std::int64_t passed_over_ = 0;
  std::optional<std::int64_t>
      exhausted_;  // step of the evaluation after which patience was at its end
};

}  // namespace troupe
