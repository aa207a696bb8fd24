// The turns of a thread that actors share.
#include "runtime/system/thread.hpp"

#include "tests/support/catch.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/resumable.hpp>

#include <atomic>
#include <future>
#include <memory>
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
    Thread thread(stage.system);
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
    Thread thread(stage.system);
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
    Thread thread(stage.system);
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
    Thread ping(stage.system);
    Thread pong(stage.system);
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

}  // namespace thread_test
