// What is left of a run whose jobs compute nothing: the machines' own logic, the messages and the virtual clock.
#pragma once

#include "runtime/system/driver.hpp"
#include "runtime/system/machine.hpp"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe {

/// A machine whose jobs compute nothing but the first time: from then on each kind of job hands out what it made then.
class Hollow final : public Machine {
 public:
  explicit Hollow(std::unique_ptr<Machine> inner) : inner_(std::move(inner)) {}

  void on(Message message, double now, Effects& fx) override {
    inner_->on(std::move(message), now, fx);
    for (Run& run : fx.runs) {
      Message& made = made_[{run.lane, run.work}];
      if (made) {
        run.job = [&made](Stream&) {
          return made;
        };
      } else {
        run.job = [&made, job = std::move(run.job)](Stream& stream) {
          return made = job(stream);
        };
      }
    }
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Machine> inner_;
  std::map<std::pair<Lane, Work>, Message> made_;
};

/// Keeps nothing.
class Nowhere final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry&, double) override { return std::nullopt; }
};

inline void hollow_out(Cast& cast) {
  for (Cast::Member& member : cast.members) {
    member.machine = std::make_unique<Hollow>(std::move(member.machine));
  }
}

}  // namespace troupe
