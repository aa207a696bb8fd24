// What handing over a message takes, beside what the system asks for waking a thread.
#include "apps/bench/benches.hpp"
#include "apps/plan/handover.hpp"

#include <cmath>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace troupe {
namespace {

/// Seconds of one hand-over between two bare threads that sleep until it comes: what the system
/// asks for waking a thread.
double bare_hop(std::int64_t rounds) {
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t at = 0;  // even: the first thread's turn
  const auto take_turns = [&](std::int64_t parity) {
    for (std::int64_t i = 0; i < rounds; ++i) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return at % 2 == parity; });
      ++at;
      changed.notify_one();
    }
  };
  return seconds_of([&] {
           std::thread other(take_turns, 1);
           take_turns(0);
           other.join();
         }) /
         static_cast<double>(2 * rounds);
}

}  // namespace

Rows hops(double seconds) {
  const auto messages = static_cast<std::int64_t>(64 * std::ceil(seconds * 4000));
  std::vector<double> streamed;
  std::vector<double> ping_pong;
  std::vector<double> woken;
  std::vector<double> of_bare;
  for (int round = 0; round < turns(seconds, 3); ++round) {
    streamed.push_back(handover(messages, Handover::streamed));
    ping_pong.push_back(handover(messages / 32, Handover::awaited));
    woken.push_back(handover(messages / 32, Handover::between_jobs));
    of_bare.push_back(woken.back() / bare_hop(messages / 32));
  }
  return {{"handle between two actors, streamed",
           number("%.2f us a message", 1e6 * median(streamed)),
           "",
           "",
           "<= 1 us"},
          {"handle between two actors, ping-pong",
           number("%.2f us a message", 1e6 * median(ping_pong)),
           "",
           "",
           "<= 1 us"},
          {"the same, where each has a job to do besides",
           number("%.2f us a message", 1e6 * median(woken)),
           "two bare threads that wake each other",
           number("%.2f x", median(of_bare)),
           "<= 15 us"}};
}

}  // namespace troupe
