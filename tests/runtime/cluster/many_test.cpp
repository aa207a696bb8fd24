// What a run of many processes costs: a lead and its nodes, all in this program, with a thread in the place of each process.
// Their control streams and channels are those of hosts, over the loopback device.
#include "runtime/cluster/lead.hpp"
#include "runtime/cluster/meeting.hpp"
#include "runtime/cluster/node.hpp"
#include "runtime/system/room.hpp"
#include "runtime/system/threads.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/free_address.hpp"
#include "tests/support/partners.hpp"
#include "tests/support/script.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

namespace many_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

/// Of all processes of a run together.
struct Costs {
  double start = 0;        // seconds until all machines have been heard of
  double descriptors = 0;  // while nobody has anything to do
  double threads = 0;
  double mebibytes = 0;  // of resident memory
  double busy = 0;       // seconds of CPU time in a second, of that time
  double busiest = 0;    // the same of the busiest thread, which serves the lead's channels
  double heard = 0;      // bytes that the lead has heard in a second, the same
};

Cast cast_of(int processes, const Part& director) {
  Cast cast = directed_by(director);
  for (int p = 1; p < processes; ++p) {
    cast.starting.push_back(add(cast, concat("machine-", p), p, [](Message, double, Effects& fx) {
      fx.send(kDirector, Advanced{0, 0});
    }));
  }
  return cast;
}

std::vector<int> own_processes(int processes) {
  std::vector<int> all(static_cast<std::size_t>(processes));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

double entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<double>(std::distance(begin(all), end(all)));
}

double resident() {
  std::ifstream file("/proc/self/statm");
  double all = 0;
  double here = 0;
  file >> all >> here;
  return here * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

/// By thread of this program: the CPU time that it has had, in seconds.
std::map<std::string, double> cpu_of_threads() {
  std::map<std::string, double> all;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    double nanoseconds = 0;
    std::ifstream(thread.path() / "schedstat") >> nanoseconds;
    all[thread.path().filename()] = nanoseconds * 1e-9;
  }
  return all;
}

void play_node(const HostAddress& lead, int number, int processes) {
  const Patience patience{.until = Clock::now() + 300s};
  auto stream = come_to(lead, number, processes, nullptr, patience, {});
  const auto invitation = stream ? read_invitation(**stream, patience) : std::nullopt;
  if (!invitation) {
    return;  // then the lead ends with an error
  }
  Cast cast = cast_of(processes, [](Message, double, Effects&) {});
  Node node(*invitation, own_processes(processes), *std::move(stream), "127.0.0.1");
  if (node.join("version", "cast")) {
    Ledger none;
    run_on_threads(
        cast, none, {.others = &node, .stall_seconds = std::numeric_limits<double>::infinity()});
  }
}

std::uint64_t bytes_heard(const Lead& lead) {
  std::uint64_t bytes = 0;
  for (const auto& [number, link] : lead.traffic()) {
    bytes += link.received;
  }
  return bytes;
}

/// A run in which each node tells the lead one thing and then all are idle for so long.
Costs costs_of(int processes, std::chrono::duration<double> idle) {
  Costs costs{.descriptors = -entries_of("/proc/self/fd"),
              .threads = -entries_of("/proc/self/task"),
              .mebibytes = -resident()};
  std::atomic<int> heard = 0;
  std::atomic<bool> over = false;
  const HostAddress address = free_address();
  auto meeting = Meeting::open(address, processes, nullptr, [](const std::string&) {});
  REQUIRE(meeting);
  const auto begin = Clock::now();
  std::vector<std::thread> nodes;
  for (int number = 1; number < processes; ++number) {
    nodes.emplace_back([&, number] { play_node(address, number, processes); });
  }
  Lead lead({.processes = processes,
             .process_of = own_processes(processes),
             .version = "version",
             .cast = "cast",
             .partners = with_the_lead(processes),
             .experiment = "many",
             .bounds = {.stages = 1, .actors = static_cast<std::size_t>(processes)},
             .meeting = std::shared_ptr<Meeting>(*std::move(meeting))});
  const auto started = lead.start();
  INFO((started ? "" : started.error().message));
  REQUIRE(started);
  Cast cast = cast_of(processes, [&](Message message, double, Effects& fx) {
    heard += holds_alternative<Advanced>(message) ? 1 : 0;
    if (over) {  // the user has interrupted
      fx.finish({});
    }
  });
  Ending ending;
  std::thread run([&] {
    Ledger none;
    ending = run_on_threads(cast,
                            none,
                            {.interrupts = [&] { return over ? 1 : 0; },
                             .others = &lead,
                             .stall_seconds = std::numeric_limits<double>::infinity()});
  });
  while (heard < processes - 1) {
    std::this_thread::sleep_for(1ms);
  }
  costs.start = std::chrono::duration<double>(Clock::now() - begin).count();
  const double cpu = cpu_seconds();
  const std::uint64_t bytes = bytes_heard(lead);
  const auto looked = Clock::now();
  const auto threads = cpu_of_threads();
  std::this_thread::sleep_for(idle);
  const double time = std::chrono::duration<double>(Clock::now() - looked).count();
  costs.busy = (cpu_seconds() - cpu) / time;
  costs.heard = static_cast<double>(bytes_heard(lead) - bytes) / time;
  for (const auto& [thread, seconds] : cpu_of_threads()) {
    if (const auto before = threads.find(thread); before != threads.end()) {
      costs.busiest = std::max(costs.busiest, (seconds - before->second) / time);
    }
  }
  costs.descriptors += entries_of("/proc/self/fd");
  costs.threads += entries_of("/proc/self/task");
  costs.mebibytes += resident();
  over = true;
  run.join();
  for (std::thread& node : nodes) {
    node.join();
  }
  CHECK(ending.exit_code == 130);
  return costs;
}

}  // namespace

TEST_CASE("a process that talks with the lead alone holds as much among few as among many") {
  costs_of(2, 0s);  // libraries keep what they open first
  const Costs few = costs_of(8, 0s);
  const Costs some = costs_of(16, 0s);
  const Costs many = costs_of(24, 0s);
  // A thread that has ended is listed for a moment. If each process held something for each other one, 8 more of them would
  // hold 128 more than 8 more did before.
  const auto bend = [](double first, double second, double third) {
    return std::abs((third - second) - (second - first));
  };
  CHECK(bend(few.descriptors, some.descriptors, many.descriptors) <= 2);
  CHECK(bend(few.threads, some.threads, many.threads) <= 2);
}

// TROUPE_PROCESSES=1000 build/release/tests/runtime/cluster/runtime_cluster_many_test "[.measure]"
TEST_CASE("what a run of so many processes costs", "[.measure]") {
  allow_all_descriptors();
  const char* const asked = std::getenv("TROUPE_PROCESSES");
  const int processes = asked ? std::atoi(asked) : 64;
  const Costs costs = costs_of(processes, 4s);
  std::cout << processes << " processes: start " << costs.start << " s, descriptors "
            << costs.descriptors << ", threads " << costs.threads << ", memory " << costs.mebibytes
            << " MiB, idle " << costs.busy << " CPU s/s, of which the lead's channels "
            << costs.busiest << ", the lead hears " << costs.heard << " B/s\n";
}

}  // namespace many_test
