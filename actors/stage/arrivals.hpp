// What the source and the neighbouring stages have sent for micro-batches that a stage has not yet
// worked on: inputs, labels and error signals.
#pragma once

#include "actors/stage/micro_batch.hpp"
#include "messages/messages.hpp"
#include "messages/record.hpp"
#include "runtime/schemes/schedule.hpp"

#include <map>
#include <optional>
#include <string>

namespace troupe {

class Arrivals {
 public:
  struct ForwardInput {
    Bundle bundle;
    Tensor labels;  // where the chunk needs them; elsewhere empty
  };

  void keep(Activation m) { inputs_[micro_batch_of(m.stamp)] = std::move(m.bundle); }

  void keep(Labels m) { labels_[micro_batch_of(m.stamp)] = std::move(m.labels); }

  /// Adds to what other senders have sent for the same micro-batch.
  void keep(ErrorSignal m);

  /// What is to arrive for a chunk beside its inputs.
  struct Needs {
    bool labels = false;
    std::size_t errors = 0;  // entries of the error signal's bundle, at least
  };

  /// Which arrival the forward or backward `a` still lacks.
  std::optional<Want> missing(const Action& a, Needs needs) const;

  /// What `a` lacks and who is to send it, for people.
  std::string describe(Want missing, const Action& a, const Schedule& schedule) const;

  /// For a forward that starts: it stays here until the forward is done.
  ForwardInput input(const Action& a) const;

  ForwardInput take_input(const Action& a);

  /// Empty where nobody sends one.
  Bundle take_error(const Action& a);

  void archive(auto& a) { a(inputs_, labels_, errors_); }

 private:
  std::map<MicroBatch, Bundle> inputs_;
  std::map<MicroBatch, Tensor> labels_;
  std::map<MicroBatch, Bundle> errors_;
};

}  // namespace troupe
