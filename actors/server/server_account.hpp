// What a server counts for the summary of the run: pushes that it applied or dropped, how late they
// were, bytes that travelled.
#pragma once

#include "actors/server/replicas.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

class ServerAccount {
 public:
  /// `group`: of replicas, whose server it is; -1: of all.
  ServerAccount(std::int32_t chunk, std::size_t slice, std::int32_t group)
      : record_{.chunk = chunk, .slice = slice, .group = group} {}

  void applied(std::int64_t lag) {
    ++record_.applied;
    record_.lag += lag;
  }

  void dropped() { ++record_.dropped; }

  /// Tensors that came in or went out.
  void travelled(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) {
      record_.bytes += tensor ? 4 * tensor.elements() : 0;
    }
  }

  void travelled(const Weights& weights) {
    for (const Slice& slice : weights) {
      record_.bytes += slice.values ? 4 * slice.values.elements() : 0;
    }
  }

  /// `push` is not in the weights of `version`, the last.
  void under_way(const Upload& push, std::int64_t version) {
    ++record_.in_flight;
    record_.in_flight_age += version - push.read_version;
  }

  /// Records the account. `more`: what the replicas have in work, which it counts, too.
  void record(const Replicas& replicas, const Replicas::InFlight& more, Effects& fx) {
    record_.version = replicas.ledger().version;
    record_.in_flight += more.count;
    record_.in_flight_age += more.age;
    fx.record(record_);
    recorded_ = true;
  }

  bool recorded() const { return recorded_; }

  void archive(auto& a) { a(record_, recorded_); }

 private:
  ServerRecord record_;
  bool recorded_ = false;
};

}  // namespace troupe
