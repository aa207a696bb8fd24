// What goes wrong on threads: a machine ends alone, and the director hears of it; a stall is told.
#include "messages/pipeline.hpp"
#include "runtime/system/mailboxes.hpp"
#include "runtime/system/threads.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/script.hpp"

#include <pthread.h>

#include <atomic>
#include <future>

namespace threads_faults_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int kLost = static_cast<int>(ErrorKind::lost);

Ending perform(Cast& cast, const ThreadOptions& options = {}) {
  Ledger ledger;
  return run_on_threads(cast, ledger, options);
}

}  // namespace

TEST_CASE("an exception ends its machine alone, and the director is told once", "[threads]") {
  const auto thrower = [](const char* where) -> Part {
    return [where](Message message, double, Effects& fx) {
      const std::string at = where;
      if (holds_alternative<Ran<Computed>>(message)) {
        return;
      }
      if (at == "a job") {
        fx.run(job_of([] { throw std::runtime_error("a kernel failed"); }));
      } else if (at == "a handler") {
        throw std::runtime_error("a kernel failed");
      } else {
        throw 7;  // NOLINT: whatever it is
      }
    };
  };
  for (const char* where : {"a handler", "a job", "something else"}) {
    for (const int thread : {0, 1}) {  // the director's own, and another
      std::vector<Down> downs;
      Cast cast = directed_by([&](Message message, double, Effects& fx) {
        if (const auto* down = get_if<Down>(&message)) {
          downs.push_back(*down);
          fx.send(worker(1), Advance{1});  // dropped: it is gone
          fx.send(worker(2), Advance{2});
        }
        end_when_told(message, fx);
      });
      cast.starting = {add(cast, "victim", thread, thrower(where))};
      add(cast, "neighbour", thread, answering(2));
      INFO("in " << where << " on thread " << thread);
      CHECK(perform(cast).exit_code == 0);
      REQUIRE(downs.size() == 1);
      CHECK(downs[0].actor == "victim");
      CHECK(downs[0].id == 1);
      CHECK(downs[0].cause == (std::string(where) == "something else"
                                   ? "an exception of an unknown kind"
                                   : "a kernel failed"));
    }
  }
}

TEST_CASE("messages that come after a machine's death do not count as waiting", "[threads]") {
  Mailboxes mailboxes(2);
  std::int64_t waiting = 0;
  Cast cast = directed_by([&](Message message, double now, Effects& fx) {
    if (holds_alternative<Down>(message)) {
      fx.send(worker(1), Advance{});
      fx.wake(now);
    } else if (holds_alternative<Alarm>(message)) {
      waiting = mailboxes.waiting(1);
      fx.finish({});
    }
  });
  cast.starting = {
      add(cast, "victim", 1, [](Message, double, Effects&) { throw std::runtime_error("no"); })};
  CHECK(perform(cast, {.mailboxes = &mailboxes}).exit_code == 0);
  CHECK(waiting < 0);
}

TEST_CASE("what a machine sent before its death comes before the news of it", "[threads]") {
  constexpr std::int64_t kMessages = 200;
  std::int64_t seen = 0;
  std::int64_t seen_at_death = -1;
  Cast cast = directed_by([&](Message message, double, Effects& fx) {
    seen += holds_alternative<Advanced>(message) ? 1 : 0;
    if (holds_alternative<Down>(message)) {
      seen_at_death = seen;
      fx.finish({});
    }
  });
  cast.starting = {add(cast, "victim", 1, [](Message message, double, Effects& fx) {
    if (holds_alternative<Advance>(message)) {
      throw std::runtime_error("enough");
    }
    for (std::int64_t i = 0; i < kMessages; ++i) {
      fx.send(kDirector, Advanced{0, i});
    }
    fx.send(worker(1), Advance{});
  })};
  perform(cast);
  CHECK(seen_at_death == kMessages);
}

TEST_CASE("a run ends when its director or its recorder is lost", "[threads]") {
  Cast cast = directed_by([](Message, double, Effects&) { throw std::runtime_error("bad news"); });
  cast.starting = {0};
  const Ending ending = perform(cast);
  CHECK(ending.exit_code == kLost);
  CHECK(ending.cause == "director is lost: bad news");

  Cast recorded = directed_by([](Message, double, Effects& fx) {
    for (int i = 0; i < 3; ++i) {
      fx.record(StageRecord{});
    }
  });
  recorded.starting = {0};
  Ledger full(2);
  const Ending unkept = run_on_threads(recorded, full, {});
  CHECK(unkept.exit_code == kLost);
  CHECK(unkept.cause == "the recorder is lost: the disk is full");
}

TEST_CASE("a machine is told only what its role understands", "[threads]") {
  class Worker final : public Actor<Worker, RowWorkerRole> {
   public:
    void handle(Advance m, double, Effects& fx) { fx.send(kDirector, Advanced{1, m.batches}); }

    void handle(Ran<RowsDone>, double, Effects&) {}

    std::string waits_for() const override { return ""; }
  };

  std::string cause;
  Cast cast = directed_by([&](Message message, double, Effects& fx) {
    if (const auto* down = get_if<Down>(&message)) {
      cause = down->actor + ": " + down->cause;
      fx.send(worker(1), Advance{3});
    }
    end_when_told(message, fx);
  });
  add(cast, "worker", 1, std::make_unique<Worker>());
  cast.starting = {add(cast, "confused", 1, [](Message, double, Effects& fx) {
    fx.send(Ref<StageRole>{1}, End{});  // 1 is no stage
  })};
  CHECK(perform(cast).exit_code == 0);
  CHECK(cause.starts_with("confused: worker does not understand End"));
}

TEST_CASE("a stall is told with what everyone who is left waits for", "[threads]") {
  Cast cast = directed_by([](Message, double, Effects&) {}, "the end");
  add(cast, "idle", 1, answering(1));
  add(cast, "waiting", 1, answering(2), "better times");
  cast.starting = {add(
      cast, "dead", 1, [](Message, double, Effects&) { throw 1; }, "nothing any more")};
  const Ending ending = perform(cast, {.stall_seconds = 0.01});
  CHECK(ending.exit_code == kLost);
  CHECK(ending.cause ==
        "the run has stalled: director waits for the end; waiting waits for better times.");
}

TEST_CASE("of a dead replica nothing is kept when threads stall", "[threads]") {
  Cast cast = stalling_without_replica_0();
  const Ending ending = perform(cast, {.stall_seconds = 0.01});
  REQUIRE(ending.weights.size() == 1);
  REQUIRE(ending.weights[0].size() == 1);
  CHECK(ending.weights[0][0].step == 2);
}

TEST_CASE("a handler that does not return is named when the run stalls", "[threads]") {
  class Asked final : public Machine {
   public:
    explicit Asked(std::atomic<bool>& asked) : asked_(asked) {}

    void on(Message, double, Effects&) override {}

    std::string waits_for() const override {
      asked_ = true;
      return "the end";
    }

   private:
    std::atomic<bool>& asked_;
  };

  std::atomic<bool> asked{false};
  std::promise<void> release;
  Cast cast;
  cast.director = {add(cast, "director", 0, std::make_unique<Asked>(asked))};
  cast.starting = {
      add(cast, "stuck", 1, [&](Message, double, Effects&) { release.get_future().wait(); })};
  ThreadOptions options;
  options.stall_seconds = 0.01;
  bool released = false;
  options.interrupts = [&] {  // asked after the stall has been told
    if (asked && !released) {
      released = true;
      release.set_value();
    }
    return 0;
  };
  const Ending ending = perform(cast, options);
  CHECK(ending.exit_code == kLost);
  CHECK(ending.cause.find("stuck waits for its thread, where a handler does not return") !=
        std::string::npos);
}

TEST_CASE("without room for its threads a run is refused, and the next one runs", "[threads]") {
  const auto ring = [] {
    Cast cast = directed_by([](Message message, double, Effects& fx) {
      if (holds_alternative<Start>(message)) {
        fx.send(worker(16), Advance{});
      }
      end_when_told(message, fx);
    });
    for (int i = 1; i <= 16; ++i) {
      add(cast, concat("worker-", i), i, answering(i));
    }
    cast.starting = {0};
    return cast;
  };
  // Stacks of 16 TiB, of which the address space holds no more than eight.
  pthread_attr_t usual;
  REQUIRE(pthread_getattr_default_np(&usual) == 0);
  pthread_attr_t large;
  REQUIRE(pthread_attr_init(&large) == 0);
  REQUIRE(pthread_attr_setstacksize(&large, std::size_t{1} << 44) == 0);
  REQUIRE(pthread_setattr_default_np(&large) == 0);
  Cast cast = ring();
  CHECK_THROWS_WITH(perform(cast), says(" of the 20 threads that the run needs could be made"));
  REQUIRE(pthread_setattr_default_np(&usual) == 0);
  Cast again = ring();
  CHECK(perform(again).exit_code == 0);
}

}  // namespace threads_faults_test
