// The cast on threads: order, jobs, delays, records.
#include "runtime/system/threads.hpp"

#include "experiment.pb.h"
#include "experiment/clock.pb.h"
#include "messages/pipeline.hpp"
#include "messages/servers.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/script.hpp"

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <thread>

namespace threads_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Ending perform(Cast& cast, const ThreadOptions& options = {}) {
  Ledger ledger;
  return run_on_threads(cast, ledger, options);
}

}  // namespace

TEST_CASE("messages of one sender to one recipient keep their order", "[threads]") {
  constexpr std::int64_t kMessages = 5000;
  constexpr int kSenders = 4;
  std::map<std::int32_t, std::int64_t> next;
  bool in_order = true;
  std::int64_t seen = 0;
  Cast cast = directed_by([&](Message message, double, Effects& fx) {
    if (const auto* m = get_if<Advanced>(&message)) {
      in_order = in_order && next[m->replica]++ == m->batches;
      if (++seen == kSenders * kMessages) {
        fx.finish({});
      }
    }
  });
  for (std::int32_t i = 0; i < kSenders; ++i) {
    // The first two share the recipient's thread. Each sends in portions, so that they take turns.
    const ActorId self = static_cast<ActorId>(i + 1);
    cast.starting.push_back(
        add(cast,
            concat("sender-", i),
            i < 2 ? 0 : i,
            [i, self, sent = std::int64_t{0}](Message, double, Effects& fx) mutable {
              for (int k = 0; k < 50 && sent < kMessages; ++k) {
                fx.send(kDirector, Advanced{i, sent++});
              }
              if (sent < kMessages) {
                fx.send(worker(self), Advance{});
              }
            }));
  }
  CHECK(perform(cast).exit_code == 0);
  CHECK(in_order);
}

TEST_CASE("a message that is under way is no stall", "[threads]") {
  // Longer than the stall and than two looks at it.
  double woken = 0;
  Cast cast = directed_by([&](Message message, double now, Effects& fx) {
    if (holds_alternative<Alarm>(message)) {
      woken = now;
      fx.finish({});
    } else {
      fx.wake(0.35);
    }
  });
  cast.starting = {0};
  const Ending ending = perform(cast, {.stall_seconds = 0.01});
  CHECK(ending.exit_code == 0);
  CHECK(woken >= 0.35);
}

TEST_CASE("modelled results and links come no sooner than modelled", "[threads]") {
  proto::Clock clock;
  const TimeModel times(clock, {{.forward = 0.03, .link = 0.02}, {.forward = 0.03}}, 1);
  double job_began = 0;
  double job_came = 0;
  double tensor_came = 0;
  Cast cast = directed_by([&](Message message, double now, Effects& fx) {
    if (holds_alternative<Activation>(message)) {
      tensor_came = now;
      fx.finish({});
    }
  });
  cast.starting = {add(cast, "stage", 1, [&](Message message, double now, Effects& fx) {
    if (holds_alternative<Ran<Computed>>(message)) {
      job_came = now;
      Activation activation;
      activation.stamp.chunk = 1;
      fx.send(Ref<StageRole>{0}, activation);
    } else {
      job_began = now;
      fx.run(job_of([] {}, Work::forward));
    }
  })};
  Ledger ledger;
  ThreadOptions options;
  options.modelled = &times;
  CHECK(run_on_threads(cast, ledger, options).exit_code == 0);
  CHECK(job_came >= job_began + 0.03);
  CHECK(tensor_came >= job_came + 0.02);
  REQUIRE(ledger.entries.size() == 1);
  const auto& busy = std::get<BusyRecord>(ledger.entries[0]);
  CHECK(busy.end - busy.start == Approx(0.03));
}

TEST_CASE("a replica that is held back gets its results later by its factor", "[threads]") {
  double came = 0;
  Cast cast = directed_by([](Message message, double, Effects& fx) { end_when_told(message, fx); });
  cast.starting = {add(cast, "stage", 1, [&](Message message, double now, Effects& fx) {
    if (holds_alternative<Ran<Computed>>(message)) {
      came = now;
      fx.send(kDirector, Advanced{});
    } else {
      fx.run(job_of(
          [] {
            const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
            while (std::chrono::steady_clock::now() < until) {
            }
          },
          Work::forward));
    }
  })};
  cast.members[1].replica = 1;
  Ledger ledger;
  CHECK(run_on_threads(cast, ledger, {.hold_back = {1, 3}}).exit_code == 0);
  const auto& busy = std::get<BusyRecord>(ledger.entries.at(0));
  CHECK(busy.end - busy.start >= 0.005);
  CHECK(came >= busy.start + 3 * (busy.end - busy.start));
}

TEST_CASE("a message that comes during a job goes before the next job", "[threads]") {
  std::promise<void> sent;
  std::vector<std::string> log;
  Cast cast = directed_by([](Message message, double, Effects& fx) { end_when_told(message, fx); });
  const ActorId stage = add(cast, "stage", 1, [&](Message message, double, Effects& fx) {
    if (holds_alternative<Start>(message)) {
      fx.run(job_of([&] { sent.get_future().wait(); }));
      fx.run(job_of([&] { log.push_back("job 2"); }));
    } else if (holds_alternative<Advance>(message)) {
      log.push_back("message");
    } else if (!log.empty() && log.back() == "job 2") {
      fx.send(kDirector, Advanced{});
    }
  });
  const ActorId other = add(cast, "other", 2, [&](Message message, double, Effects& fx) {
    if (holds_alternative<Start>(message)) {
      fx.send(worker(stage), Advance{});
      fx.run(job_of([&] { sent.set_value(); }));  // after its sends
    }
  });
  cast.starting = {stage, other};
  CHECK(perform(cast).exit_code == 0);
  CHECK(log == std::vector<std::string>{"message", "job 2"});
}

TEST_CASE("when a run returns its records have been handed over, each sender's in order",
          "[threads]") {
  constexpr std::int64_t kRecords = 3000;
  Cast cast = directed_by([](Message message, double, Effects& fx) {
    for (int i = 0; i < 10; ++i) {
      fx.record(EvaluationRecord{});
    }
    end_when_told(message, fx);
  });
  cast.starting = {add(cast, "worker", 1, [](Message, double, Effects& fx) {
    for (std::int64_t i = 0; i < kRecords; ++i) {
      fx.record(StageRecord{.stashes_max = i});
    }
    fx.send(kDirector, Advanced{});
  })};
  Ledger ledger;
  CHECK(run_on_threads(cast, ledger, {}).exit_code == 0);
  REQUIRE(ledger.entries.size() == kRecords + 10);
  for (std::int64_t i = 0; i < kRecords; ++i) {  // before those of the message that followed them
    REQUIRE(std::get<StageRecord>(ledger.entries[static_cast<std::size_t>(i)]).stashes_max == i);
  }
}

TEST_CASE(
    "machines that record faster than the recorder sees to it wait, and are not called stalled",
    "[threads]") {
  constexpr std::int64_t kMessages = 16'000;
  std::atomic<std::int64_t> made{0};

  /// Sees to some ten thousand a second, and to the first of them late.
  class Slow final : public RecordSink {
   public:
    explicit Slow(const std::atomic<std::int64_t>& made) : made_(made) {}

    std::optional<Diverged> on(const RecordEntry& /*entry*/, double /*now*/) override {
      std::this_thread::sleep_for(seen_ == 0 ? std::chrono::milliseconds{300}
                                             : std::chrono::microseconds{30});
      most_behind_ = std::max(most_behind_, made_ - ++seen_);
      return {};
    }

    std::int64_t seen() const { return seen_; }

    std::int64_t most_behind() const { return most_behind_; }

   private:
    const std::atomic<std::int64_t>& made_;
    std::int64_t seen_ = 0;
    std::int64_t most_behind_ = 0;
  };

  Cast cast = directed_by([](Message message, double, Effects& fx) { end_when_told(message, fx); });
  cast.starting.push_back(add(cast, "talker", 1, [&](Message, double, Effects& fx) {
    fx.record(StageRecord{.stashes_max = ++made});
    if (made == kMessages) {
      fx.send(kDirector, Advanced{});
    } else {
      fx.send(worker(1), Advance{});
    }
  }));
  Slow records(made);
  const Ending ending = run_on_threads(cast, records, {.stall_seconds = 0.1});
  INFO(ending.cause);
  CHECK(ending.exit_code == 0);
  CHECK(records.seen() == kMessages);
  CHECK(records.most_behind() > 1000);
  CHECK(records.most_behind() <= 10'010);
}

TEST_CASE("each thread has a log of its own deliveries", "[threads]") {
  class Deliveries final : public OrderSink {
   public:
    void note(const Delivered& made) override {
      all.emplace_back(made.to, message_name(made.message));
    }

    std::vector<std::pair<ActorId, std::string>> all;
  };

  Deliveries of[2];
  Cast cast = directed_by([](Message message, double, Effects& fx) { end_when_told(message, fx); });
  add(cast, "worker", 1, answering(1));
  cast.starting = {
      add(cast, "asking", 0, [](Message, double, Effects& fx) { fx.send(worker(1), Advance{}); })};
  CHECK(perform(cast, {.orders = {&of[0], &of[1]}}).exit_code == 0);
  CHECK(of[0].all == std::vector<std::pair<ActorId, std::string>>{{2, "Start"}, {0, "Advanced"}});
  CHECK(of[1].all == std::vector<std::pair<ActorId, std::string>>{{1, "Advance"}});
}

TEST_CASE("a hundred threads hand a message round", "[threads]") {
  constexpr ActorId kThreads = 100;
  constexpr std::int64_t kRounds = 20;
  Cast cast = directed_by([](Message message, double, Effects& fx) {
    if (holds_alternative<Start>(message)) {
      fx.send(worker(1), Advance{0});
    } else if (const auto* m = get_if<Advance>(&message)) {
      if (m->batches == kRounds * (kThreads - 1)) {
        Ending ending;
        ending.step = m->batches;
        fx.finish(std::move(ending));
      } else {
        fx.send(worker(1), *m);
      }
    }
  });
  cast.starting = {0};
  for (ActorId i = 1; i < kThreads; ++i) {
    const ActorId next = (i + 1) % kThreads;
    add(cast, concat("runner-", i), static_cast<int>(i), [next](Message m, double, Effects& fx) {
      fx.send(worker(next), Advance{get<Advance>(m).batches + 1});
    });
  }
  const Ending ending = perform(cast);
  CHECK(ending.exit_code == 0);
  CHECK(ending.step == kRounds * (kThreads - 1));
}

TEST_CASE("asked to stop, the director is told; asked again, the run ends", "[threads]") {
  std::atomic<int> asked{0};
  bool told = false;
  Cast cast = directed_by([&](Message message, double, Effects&) {
    told = told || holds_alternative<Halt>(message);
    asked = told ? 2 : 1;
  });
  cast.starting = {0};
  ThreadOptions options;
  options.interrupts = [&] {
    return asked.load();
  };
  const Ending ending = perform(cast, options);
  CHECK(told);
  CHECK(ending.exit_code == 130);
  CHECK(ending.cause == "interrupted");
}

}  // namespace threads_test
