#include "apps/plan/handover.hpp"

#include "messages/evaluation.hpp"
#include "messages/pipeline.hpp"
#include "messages/ran.hpp"
#include "messages/results.hpp"
#include "runtime/system/threads.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t kWindow = 256;

/// A job that computes nothing.
void work(Effects& fx) {
  const auto job = [](Stream&) {
    return Message(Ran<Computed>{});
  };
  fx.run({.stamp = {}, .job = job});
}

/// Sends activations to its partner: one at a time (it waits for each to come back), or kWindow ahead with a credit each
/// 64. Tells the director how many seconds they took.
class Thrower final : public Machine {
 public:
  Thrower(Ref<StageRole> partner,
          Ref<DirectorRole> director,
          std::int64_t messages,
          Handover how,
          Tensor tensor)
      : partner_(partner),
        director_(director),
        left_(messages),
        to_come_(how == Handover::streamed ? messages / 64 : messages),
        how_(how),
        tensor_(std::move(tensor)) {}

  void on(Message message, double now, Effects& fx) override {
    if (holds_alternative<Start>(message)) {
      start_ = now;
      throw_some(how_ == Handover::streamed ? kWindow : 1, fx);
    } else if (!holds_alternative<Activation>(message)) {
      return;  // its job is done
    } else if (--to_come_ == 0) {
      fx.send(director_, MarkDone{.step = 0, .accuracy = now - start_, .last = true});
    } else {
      throw_some(how_ == Handover::streamed ? 64 : 1, fx);
    }
  }

  std::string waits_for() const override { return "its partner"; }

 private:
  void throw_some(std::int64_t count, Effects& fx) {
    for (; count > 0 && left_ > 0; --count, --left_) {
      fx.send(partner_, Activation{{}, {{"x", tensor_}}});
    }
    if (how_ == Handover::between_jobs) {
      work(fx);
    }
  }

  Ref<StageRole> partner_;
  Ref<DirectorRole> director_;
  std::int64_t left_;
  std::int64_t to_come_;
  Handover how_;
  Tensor tensor_;
  double start_ = 0;
};

/// Sends back each activation, or of a stream each 64th.
class Catcher final : public Machine {
 public:
  Catcher(Ref<StageRole> partner, Handover how) : partner_(partner), how_(how) {}

  void on(Message message, double, Effects& fx) override {
    if (!holds_alternative<Activation>(message)) {
      return;  // its job is done
    }
    if (how_ != Handover::streamed || ++seen_ % 64 == 0) {
      fx.send(partner_, get<Activation>(std::move(message)));
    }
    if (how_ == Handover::between_jobs) {
      work(fx);
    }
  }

  std::string waits_for() const override { return "its partner"; }

 private:
  Ref<StageRole> partner_;
  Handover how_;
  std::int64_t seen_ = 0;
};

/// Machines that hand over record nothing.
class Nothing final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry&, double) override { return std::nullopt; }
};

/// Ends the run at the first message and keeps the seconds that a MarkDone tells.
class Judge final : public Machine {
 public:
  explicit Judge(double& seconds) : seconds_(seconds) {}

  void on(Message message, double, Effects& fx) override {
    if (const auto* done = get_if<MarkDone>(&message)) {
      seconds_ = done->accuracy;
    }
    fx.finish({});
  }

  std::string waits_for() const override { return "the end"; }

 private:
  double& seconds_;
};

}  // namespace

double handover(std::int64_t messages, Handover how) {
  Stream stream(Device{});
  const Tensor tensor = stream.allocate({128, 1024});
  double seconds = 0;
  Cast cast;
  const auto add = [&](const char* name, std::unique_ptr<Machine> machine) {
    cast.members.push_back({name, std::move(machine), static_cast<int>(cast.members.size()), {}});
  };
  add("thrower",
      std::make_unique<Thrower>(Ref<StageRole>{1}, Ref<DirectorRole>{2}, messages, how, tensor));
  add("catcher", std::make_unique<Catcher>(Ref<StageRole>{0}, how));
  add("judge", std::make_unique<Judge>(seconds));
  cast.threads = 3;
  cast.director = {2};
  cast.starting = {0};
  Nothing records;
  run_on_threads(cast, records, {});
  return seconds / static_cast<double>(how == Handover::streamed ? messages : 2 * messages);
}

}  // namespace troupe
