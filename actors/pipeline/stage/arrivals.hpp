// What the source and the neighbouring stages have sent for micro-batches that a stage has not yet
// worked on: inputs, labels and error signals. Where inputs are drawn from buffers, those of a chunk but the first are
// not of the mini-batch that it works on, but of one that the chunk before has sent.
#pragma once

#include "actors/pipeline/stage/by_micro_batch.hpp"
#include "actors/pipeline/stage/least_used_buffer.hpp"
#include "messages/messages.hpp"
#include "messages/pipeline.hpp"
#include "messages/record.hpp"
#include "runtime/schemes/schedules/schedule.hpp"

#include <cstddef>
#include <cstdint>
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

  /// `buffer`: mini-batches that each chunk but the first can draw its inputs from; 0: each once, in order. `parts`: that
  /// work on a chunk together.
  explicit Arrivals(std::size_t buffer = 0, std::int64_t parts = 1)
      : buffer_(buffer), parts_(parts) {}

  /// Adds to what other parts have sent for the same micro-batch. To be drawn from a buffer: the bundle's last entry has the
  /// labels.
  void keep(Activation&& m);

  void keep(Labels&& m) { labels_[micro_batch_of(m.stamp)] = std::move(m.labels); }

  /// Adds to what other senders have sent for the same micro-batch.
  void keep(ErrorSignal&& m);

  /// What is to arrive for a chunk beside its inputs.
  struct Needs {
    std::size_t inputs = 1;  // entries of the input's bundle, at least
    bool of_source = false;  // who sends it
    bool labels = false;
    std::size_t errors = 0;  // entries of the error signal's bundle, at least
  };

  /// Which arrival the forward or backward `a` still lacks.
  std::optional<Want> missing(const Action& a, Needs needs) const;

  /// What `a` lacks and who is to send it, for people.
  std::string describe(Want missing, const Action& a, const Schedule& schedule) const;

  struct Choice {
    bool again = false;  // it has been drawn before
    /// Inputs that made room before they were drawn, since the choice before.
    std::int64_t replaced = 0;
  };

  /// Chooses what the forward `a` of a chunk with a buffer, which lacks nothing, will get from `input`.
  Choice draw(const Action& a);

  /// For a forward that starts: it stays here until the forward is done.
  ForwardInput input(const Action& a) const;

  ForwardInput take_input(const Action& a);

  /// Empty where nobody sends one.
  Bundle take_error(const Action& a);

  void archive(auto& a) { a(inputs_, labels_, errors_, buffered_); }

 private:
  struct Buffered {
    LeastUsedBuffer<ForwardInput> inputs;
    std::int64_t replaced = 0;
  };

  bool draws(std::int32_t chunk) const { return buffer_ > 0 && chunk > 0; }

  /// Adds what a part has sent to what others have. BadSender where it is of other samples than theirs.
  void add(ByMicroBatch<Bundle>& to, const Stamp& stamp, Bundle more) const;

  std::size_t buffer_;
  std::int64_t parts_;
  ByMicroBatch<Bundle> inputs_;
  ByMicroBatch<Tensor> labels_;
  ByMicroBatch<Bundle> errors_;
  std::map<std::int32_t, Buffered> buffered_;  // by chunk
};

}  // namespace troupe
