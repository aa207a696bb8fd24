// Whom the lead waits for before the run begins: for how long, and for how many at a time.
#include "kernels/sequences.hpp"
#include "runtime/cluster/lead.hpp"
#include "runtime/cluster/meeting.hpp"

#include <algorithm>
#include <iterator>
#include <system_error>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Patience Lead::patience() const {
  return {.until = Clock::now() + c_.limits.join, .given_up = [this, since = Clock::now()] {
            if (Clock::now() - since >= kWaitsUntold) {
              tell_of_waiting();
            }
            return closed_ || failing_ || asked_to_stop() > 0;
          }};
}

/// From now on each process is waited for as long as any.
void Lead::be_patient() {
  for (auto& [number, member] : members_) {
    member.patience = patience();
  }
}

void Lead::tell_of_waiting() const {
  const std::lock_guard lock(start_mutex_);
  if (c_.tell_waiting && !awaited_.empty()) {
    const std::size_t more = awaited_.size() - 1;
    c_.tell_waiting(concat("waiting for ",
                           name_of(*awaited_.begin()),
                           more > 0 ? concat(" and ", more, " more") : ""));
  }
}

int Lead::missing_process() const {
  const std::lock_guard lock(start_mutex_);
  return awaited_.empty() ? 0 : *awaited_.begin();
}

/// Does `work` for every process, for so many at a time; one at a time is the calling thread's. Error: what has failed, of all
/// for which it has. Once one has failed, the others are given up, unless they are heard in any case, or their time is over, too.
Result<void> Lead::for_all(std::ptrdiff_t at_once, bool hears_all, const Work& work) {
  std::map<int, Error> failed;
  auto next = members_.begin();
  const auto take = [&] {
    std::unique_lock lock(start_mutex_);
    while (next != members_.end() && !failing_) {
      auto& [number, member] = *next++;
      awaited_.insert(number);
      lock.unlock();
      Result<void> done;
      try {
        done = work(number, member);
      } catch (const std::exception& error) {
        done = Error{ErrorKind::lost, concat(name_of(number), ": ", error.what())};
      }
      lock.lock();
      if (done || failing_) {
        awaited_.erase(number);
      } else {
        failed.emplace(number, done.error());
        // Those who are late are late together, and are all named.
        failing_ = !hears_all && Clock::now() < member.patience.until;
      }
    }
  };
  std::vector<std::thread> threads;
  try {
    while (std::ssize(threads) + 1 < std::min(at_once, std::ssize(members_))) {
      threads.emplace_back([&take] {
        without_broken_pipes();
        take();
      });
    }
  } catch (const std::system_error&) {  // there is no room for more: those that there are do it all
  }
  take();
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (failed.empty()) {
    return {};
  }
  if (asked_to_stop() > 0) {
    return Error{ErrorKind::lost, "interrupted before the run began"};
  }
  for (const auto& [number, error] : failed) {
    if (error.kind != ErrorKind::lost) {  // what is wrong here is so for all
      return error;
    }
  }
  return Error{ErrorKind::lost,
               joined(failed, "; ", [](const auto& one) { return one.second.message; })};
}

}  // namespace troupe
