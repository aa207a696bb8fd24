// The turns of a thread that actors share.
#include "runtime/system/thread.hpp"

#include "tests/support/catch.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/resumable.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace thread_test {

using namespace troupe;

namespace {

using Resume = std::function<caf::resumable::resume_result()>;

/// What a thread resumes, with a count of CAF's references to it.
class Task final : public caf::resumable {
 public:
  explicit Task(Resume resume) : resume_(std::move(resume)) {}

  resume_result resume(caf::execution_unit*, std::size_t) override { return resume_(); }

  void intrusive_ptr_add_ref_impl() override { ++references; }

  void intrusive_ptr_release_impl() override { --references; }

  std::atomic<int> references{0};

 private:
  Resume resume_;
};

struct Stage {
  caf::actor_system_config config{};
  caf::actor_system system{config};
  std::vector<std::unique_ptr<Task>> tasks{};
  std::vector<std::string> log{};  // of the thread alone, until it has ended

  Task& task(Resume resume) {
    return *tasks.emplace_back(std::make_unique<Task>(std::move(resume)));
  }

  /// Says its name and is done.
  Task& saying(const std::string& name) {
    return task([this, name] {
      log.push_back(name);
      return caf::resumable::awaiting_message;
    });
  }
};

void give(Thread& thread, Task& task) {
  ++task.references;
  thread.exec_later(&task);
}

using Log = std::vector<std::string>;

}  // namespace

TEST_CASE("everything that has come goes before a job, and a job before what comes next",
          "[threads]") {
  Stage stage;
  Task& a = stage.saying("a");
  Task& b = stage.saying("b");
  Task& c = stage.saying("c");
  std::promise<void> begun;
  std::promise<void> all_there;
  {
    Crew crew;
    Thread thread(stage.system, crew);
    Task& gate = stage.task([&] {
      begun.set_value();
      all_there.get_future().wait();
      return caf::resumable::awaiting_message;
    });
    Task& first = stage.task([&] {
      thread.when_idle([&] {
        stage.log.push_back("job 1");
        give(thread, c);
      });
      thread.when_idle([&] { stage.log.push_back("job 2"); });
      return caf::resumable::awaiting_message;
    });
    give(thread, gate);
    begun.get_future().wait();  // so that the others come together, in the turn behind it
    give(thread, first);
    give(thread, a);
    give(thread, b);
    all_there.set_value();
  }
  CHECK(stage.log == Log{"a", "b", "job 1", "c", "job 2"});
}

TEST_CASE("an actor that never runs out of messages delays a job by one turn", "[threads]") {
  Stage stage;
  int turns = 0;
  {
    Crew crew;
    Thread thread(stage.system, crew);
    Task& busy = stage.task([&] {
      if (++turns == 1) {
        thread.when_idle([&] { stage.log.push_back("job"); });
      }
      stage.log.push_back("turn " + std::to_string(turns));
      return turns < 3 ? caf::resumable::resume_later : caf::resumable::awaiting_message;
    });
    give(thread, busy);
  }
  CHECK(stage.log == Log{"turn 1", "job", "turn 2", "turn 3"});
}

TEST_CASE("a thread ends when all that was given to it is done, and lets go of it", "[threads]") {
  Stage stage;
  constexpr int kTasks = 1000;
  {
    Crew crew;
    Thread thread(stage.system, crew);
    for (int i = 0; i < kTasks; ++i) {
      give(thread, stage.saying("x"));
    }
  }
  CHECK(stage.log.size() == kTasks);
  for (const auto& task : stage.tasks) {
    CHECK(task->references == 0);
  }
}

TEST_CASE("threads wake each other", "[threads]") {
  Stage stage;
  constexpr int kRounds = 2000;
  std::promise<void> over;
  {
    Crew crew;
    Thread ping(stage.system, crew);
    Thread pong(stage.system, crew);
    int left = kRounds;  // handed from thread to thread with the task
    Task* back = nullptr;
    Task& forth = stage.task([&] {
      give(pong, *back);
      return caf::resumable::awaiting_message;
    });
    back = &stage.task([&] {
      if (--left == 0) {
        over.set_value();
      } else {
        give(ping, forth);
      }
      return caf::resumable::awaiting_message;
    });
    give(ping, forth);
    over.get_future().wait();
    CHECK(left == 0);
  }
}

TEST_CASE("who has nothing else to do goes on with what it has sent to others", "[threads]") {
  Stage stage;
  std::vector<std::thread::id> hands;  // handed from turn to turn
  std::promise<void> over;
  {
    Crew crew;
    Thread replica(stage.system, crew);
    Thread server(stage.system, crew);
    Thread optimizer(stage.system, crew);
    const auto note = [&] {
      hands.push_back(std::this_thread::get_id());
      return caf::resumable::awaiting_message;
    };
    Task& back = stage.task([&] {
      const auto done = note();
      over.set_value();
      return done;
    });
    Task& update = stage.task([&] {
      optimizer.when_idle([&] {
        hands.push_back(std::this_thread::get_id());
        give(replica, back);
      });
      return note();
    });
    Task& push = stage.task([&] {
      give(optimizer, update);
      return note();
    });
    Task& begin = stage.task([&] {
      give(server, push);
      return note();
    });
    give(replica, begin);
    over.get_future().wait();
  }
  REQUIRE(hands.size() == 5);
  for (const std::thread::id hand : hands) {
    CHECK(hand == hands.front());
  }
}

TEST_CASE("others go on with what a thread has sent before its next job or turn", "[threads]") {
  for (const bool job : {true, false}) {
    INFO((job ? "job" : "turn"));
    Stage stage;
    std::promise<void> came;
    std::promise<void> over;
    Crew crew;
    Thread sender(stage.system, crew);
    Thread recipient(stage.system, crew);
    Task& message = stage.task([&] {
      came.set_value();
      return caf::resumable::awaiting_message;
    });
    const auto await = [&] {
      came.get_future().wait();
      over.set_value();
    };
    int turns = 0;
    Task& sending = stage.task([&] {
      if (++turns == 2) {
        await();
        return caf::resumable::awaiting_message;
      }
      give(recipient, message);
      if (job) {
        sender.when_idle(await);
      }
      return job ? caf::resumable::awaiting_message : caf::resumable::resume_later;
    });
    give(sender, sending);
    CHECK(over.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  }
}

TEST_CASE("a crew of many threads takes all turns that any of them asks for", "[threads]") {
  Stage stage;
  constexpr int kThreads = 8;
  constexpr int kChains = 4;
  std::atomic<int> left{20000};  // hops
  std::atomic<int> ended{0};     // chains
  std::atomic<int> at_work[kThreads] = {};
  std::atomic<bool> two_at_once{false};
  {
    Crew crew;
    std::vector<std::unique_ptr<Thread>> threads;
    std::vector<Task*> tasks;
    for (int i = 0; i < kThreads; ++i) {
      threads.push_back(std::make_unique<Thread>(stage.system, crew));
      tasks.push_back(&stage.task([&, i] {
        two_at_once = two_at_once || at_work[i].fetch_add(1) != 0;
        if (const int hop = left.fetch_sub(1); hop > 0) {
          const auto next = static_cast<std::size_t>((i * 5 + hop) % kThreads);
          give(*threads[next], *tasks[next]);
        } else {
          ++ended;
        }
        at_work[i].fetch_sub(1);
        return caf::resumable::awaiting_message;
      }));
    }
    for (std::size_t i = 0; i < kChains; ++i) {
      give(*threads[i], *tasks[i]);
    }
    while (ended < kChains) {
      std::this_thread::yield();
    }
  }
  CHECK_FALSE(two_at_once);
  for (const auto& task : stage.tasks) {
    CHECK(task->references == 0);
  }
}

}  // namespace thread_test
