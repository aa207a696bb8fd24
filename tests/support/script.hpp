// Machines whose part is written where they are needed, and a cast of them; for tests of what
// carries messages.
#pragma once

#include "messages/results.hpp"
#include "messages/sparse.hpp"
#include "runtime/system/driver.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

/// What a machine does with a message.
using Part = std::function<void(Message message, double now, Effects& fx)>;

class Script final : public Machine {
 public:
  explicit Script(Part part, std::string waits_for = "")
      : part_(std::move(part)), waits_for_(std::move(waits_for)) {}

  void on(Message message, double now, Effects& fx) override { part_(std::move(message), now, fx); }

  std::string waits_for() const override { return waits_for_; }

 private:
  Part part_;
  std::string waits_for_;
};

/// Adds a machine to the cast.
inline ActorId add(Cast& cast,
                   const std::string& name,
                   int thread,
                   std::unique_ptr<Machine> machine) {
  cast.threads = std::max(cast.threads, thread + 1);
  cast.members.push_back(
      {.name = name, .machine = std::move(machine), .thread = thread, .device = {}});
  return static_cast<ActorId>(cast.members.size() - 1);
}

inline ActorId add(
    Cast& cast, const std::string& name, int thread, Part part, const std::string& waits_for = "") {
  return add(cast, name, thread, std::make_unique<Script>(std::move(part), waits_for));
}

/// The director of a scripted cast is machine 0. It may be told Advanced, its workers Advance.
constexpr Ref<RowSourceRole> kDirector{0};

inline Ref<RowWorkerRole> worker(ActorId id) {
  return {id};
}

/// A cast whose director plays `part`, on thread 0.
inline Cast directed_by(Part part, const std::string& waits_for = "") {
  Cast cast;
  cast.director = {add(cast, "director", 0, std::move(part), waits_for)};
  return cast;
}

/// Ends the run at the first Advanced.
inline void end_when_told(const Message& message, Effects& fx) {
  if (holds_alternative<Advanced>(message)) {
    fx.finish({});
  }
}

/// A member of replica `replica` that has weights of chunk 0, known by their step.
inline ActorId add_keeper(
    Cast& cast, const std::string& name, std::int32_t replica, std::int64_t step, Part part) {
  class Keeper final : public Machine {
   public:
    Keeper(Part part, std::int64_t step) : part_(std::move(part)), step_(step) {}

    void on(Message message, double now, Effects& fx) override {
      part_(std::move(message), now, fx);
    }

    std::string waits_for() const override { return ""; }

    Remains remains() const override {
      return {.weights = {{0, 0, {Slice{.step = step_}}}}, .buffers = {}};
    }

   private:
    Part part_;
    std::int64_t step_;
  };

  const ActorId id = add(cast, name, 1, std::make_unique<Keeper>(std::move(part), step));
  cast.members[id].replica = replica;
  return id;
}

/// A cast that stalls when one machine of replica 0 has died: another one of it and both of replica 1 have
/// weights. Those of replica r are of step r + 1, the dead machine's of step 9.
inline Cast stalling_without_replica_0() {
  Cast cast = directed_by([](Message, double, Effects&) {});
  const Part idle = [](Message, double, Effects&) {
  };
  add_keeper(cast, "whole-0", 0, 1, idle);
  cast.starting = {add_keeper(
      cast, "dead-0", 0, 9, [](Message, double, Effects&) { throw std::runtime_error("no"); })};
  add_keeper(cast, "whole-1", 1, 2, idle);
  return cast;
}

/// Answers Advance with Advanced of its own number.
inline Part answering(std::int32_t number) {
  return [number](Message message, double, Effects& fx) {
    if (const auto* m = get_if<Advance>(&message)) {
      fx.send(kDirector, Advanced{number, m->batches});
    }
  };
}

inline Run job_of(std::function<void()> what, Work work = Work::unmodelled) {
  Run run;
  run.work = work;
  run.job = [what = std::move(what)](Stream&) {
    what();
    return Message(Ran<Computed>{});
  };
  return run;
}

/// Keeps what is recorded. Throws at the n-th record where told to.
class Ledger final : public RecordSink {
 public:
  explicit Ledger(std::size_t fails_at = 0) : fails_at_(fails_at) {}

  std::optional<Diverged> on(const RecordEntry& entry, double) override {
    entries.push_back(entry);
    if (entries.size() == fails_at_) {
      throw std::runtime_error("the disk is full");
    }
    return std::nullopt;
  }

  std::vector<RecordEntry> entries;

 private:
  std::size_t fails_at_;
};

}  // namespace troupe::test
