#include "runtime/record/evaluations.hpp"

#include "experiment/run.pb.h"
#include "messages/archive.hpp"
#include "messages/sections.hpp"

#include <iterator>

namespace troupe {
namespace {

constexpr std::size_t kEvaluationsKept = 64;  // few are ever under way together

template <class T>
void forget_oldest(std::map<std::int64_t, T>& by_step) {
  if (by_step.size() > kEvaluationsKept) {
    by_step.erase(by_step.begin());
  }
}

}  // namespace

void Evaluations::add(const EvaluationRecord& record) {
  // One that was under way when another ended the run comes after it, and is not of its weights.
  all_[record.step] = record;
  forget_oldest(all_);
  if (record.better) {
    bests_[record.step] = record;
    forget_oldest(bests_);
  }
  if (record.patience_ended) {
    exhausted_ = record.step;
  }
}

void Evaluations::add(const ConsensusRecord& record) {
  consensus_[record.step][record.chunk] = record.distances;  // a step may be evaluated twice
  forget_oldest(consensus_);
}

void Evaluations::add(const ReplicaRecord& record) {
  replicas_[record.step][record.replica] = record;
  forget_oldest(replicas_);
}

std::vector<double> Evaluations::distances_at(std::int64_t step) const {
  std::vector<double> sums;
  const auto found = consensus_.find(step);
  if (found == consensus_.end()) {
    return sums;
  }
  for (const auto& [chunk, distances] : found->second) {
    sums.resize(distances.size());
    for (std::size_t r = 0; r < distances.size(); ++r) {
      sums[r] = sums[r] < 0 || distances[r] < 0 ? -1 : sums[r] + distances[r];
    }
  }
  return sums;
}

void Evaluations::summarize(std::int64_t step, const proto::Experiment& e, Summary& s) const {
  if (const auto evaluation = all_.find(step); evaluation != all_.end()) {
    s.test_loss = evaluation->second.loss;
    s.test_accuracy = evaluation->second.accuracy_if_any();
  }
  s.consensus = distances_at(step);
  if (const auto found = replicas_.find(step); found != replicas_.end()) {
    s.replicas = found->second;
  }
  s.passed_over = passed_over_;
  const auto after = bests_.upper_bound(step);
  if ((sections::stop(e).patience() > 0 || sections::record(e).best()) && after != bests_.begin()) {
    s.best = std::prev(after)->second;
  }
  s.patience_ended = exhausted_ == step;
}

void Evaluations::archive(Archive& a) {
  a(all_, bests_, consensus_, replicas_, passed_over_, exhausted_);
}

}  // namespace troupe
