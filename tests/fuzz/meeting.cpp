// What one says first that comes to a lead by itself, over a real connection.
#include "runtime/cluster/meeting.hpp"

#include "tests/fuzz/fuzz.hpp"
#include "wire.pb.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

namespace troupe::fuzz {
namespace {

constexpr int kProcesses = 4;

/// A lead at a port that is free, and how many it has refused.
struct Host {
  std::atomic<std::uint64_t> refused = 0;
  HostAddress at{.host = "127.0.0.1", .port = 0};
  std::unique_ptr<Meeting> meeting;

  Host() {
    for (at.port = 20'000 + ::getpid() % 10'000; at.port < 65'000; ++at.port) {
      auto opened =
          Meeting::open(at, kProcesses, nullptr, [this](const std::string&) { ++refused; });
      if (opened) {
        meeting = *std::move(opened);
        return;
      }
    }
    std::abort();
  }
};

/// Whoever was let in, who is let go.
bool let_in(Meeting& meeting) {
  const Patience none{.until = std::chrono::steady_clock::now()};
  for (int number = 1; number < kProcesses; ++number) {
    if (const auto one = meeting.await(number, none); one && one->stream) {
      meeting.let_again(number);
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const int number : {1, 3}) {
    proto::Arrival arrival;
    arrival.set_process(static_cast<std::uint32_t>(number));
    arrival.set_processes(kProcesses);
    all.push_back(joined({arrival.SerializeAsString()}));
  }
  return all;
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  static fuzz::Host host;
  const Patience patience{.until = std::chrono::steady_clock::now() + std::chrono::seconds{10}};
  const std::uint64_t before = host.refused;
  const auto socket = connect_to(host.at, Nearness::this_machine, patience);
  if (!socket) {
    std::abort();
  }
  DescriptorStream visitor(*socket, *socket);
  visitor.write({reinterpret_cast<const char*>(data), size});  // no more than a socket holds
  visitor.finish();
  bool in = false;
  while (!in && host.refused == before) {
    if (std::chrono::steady_clock::now() > patience.until) {
      std::abort();  // it has neither been let in nor refused
    }
    std::this_thread::sleep_for(std::chrono::microseconds{50});
    in = fuzz::let_in(*host.meeting);
  }
  fuzz::sound = in;
  return 0;
}
