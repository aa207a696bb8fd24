// How a lead reaches many nodes: those that let it wait are waited for together, and all that do not answer are named.
#include "kernels/check.hpp"
#include "runtime/cluster/control_stream.hpp"
#include "runtime/cluster/keys.hpp"
#include "runtime/cluster/lead.hpp"
#include "runtime/cluster/run_keys.hpp"
#include "runtime/cluster/tls.hpp"
#include "runtime/system/threads.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/partners.hpp"
#include "tests/support/script.hpp"
#include "wire.pb.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

namespace start_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr auto kEnough = 10s;  // for all that are waited for together

/// Stands in for nodes of several hosts: one socket at all addresses of the loopback device.
class StandIns {
 public:
  /// `talk` is called for each visitor, on a thread of its own, and has the socket.
  explicit StandIns(std::function<void(int socket)> talk) : talk_(std::move(talk)) {
    const auto listening = listen_at({"0.0.0.0", 0}, Nearness::anywhere);
    REQUIRE(listening);
    listening_ = *listening;
    porter_ = std::thread([this] { receive(); });
  }

  ~StandIns() {
    over_ = true;
    porter_.join();
    for (std::thread& visit : visits_) {
      visit.join();
    }
    ::close(listening_);
  }

  StandIns(const StandIns&) = delete;
  StandIns& operator=(const StandIns&) = delete;

  HostPlace host(int number) const {
    const auto at = parse_address(near_address(listening_));
    REQUIRE(at);
    return {.address = {.host = concat("127.0.0.", number), .port = at->port}};
  }

  std::vector<HostPlace> hosts(int count) const {
    std::vector<HostPlace> all;
    for (int number = 1; number <= count; ++number) {
      all.push_back(host(number));
    }
    return all;
  }

 private:
  void receive() {
    while (!over_) {
      pollfd one{.fd = listening_, .events = POLLIN, .revents = 0};
      ::poll(&one, 1, 20);
      std::string who;
      if (const int socket = accept_one(listening_, who); socket >= 0) {
        visits_.emplace_back([this, socket] { talk_(socket); });
      }
    }
  }

  std::function<void(int socket)> talk_;
  std::atomic<bool> over_ = false;
  int listening_ = -1;
  std::vector<std::thread> visits_{};
  std::thread porter_;
};

/// Where visitors wait for each other.
class Gate {
 public:
  explicit Gate(int count) : count_(count) {}

  /// Returns when so many are here together, or after that, or when they have had enough time.
  void pass() {
    std::unique_lock lock(mutex_);
    most_ = std::max(most_, ++here_);
    open_ = open_ || here_ >= count_;
    changed_.notify_all();
    changed_.wait_until(lock, until_, [this] { return open_; });
    open_ = true;  // they did not come together: nobody waits once more
    lock.unlock();
    std::this_thread::sleep_for(50ms);  // more may come, who would be too many
    lock.lock();
    --here_;
  }

  /// How many were here at a time.
  int most() const {
    const std::lock_guard lock(mutex_);
    return most_;
  }

 private:
  const int count_;
  const std::chrono::steady_clock::time_point until_ = std::chrono::steady_clock::now() + kEnough;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0;
  int most_ = 0;
  bool open_ = false;
};

Lead::Config config(std::vector<HostPlace> hosts) {
  const auto processes = static_cast<int>(hosts.size()) + 1;
  std::vector<int> own_processes(static_cast<std::size_t>(processes));
  std::iota(own_processes.begin(), own_processes.end(), 0);
  return {.processes = processes,
          .process_of = own_processes,
          .version = "version",
          .cast = "cast",
          .partners = with_the_lead(processes),
          .experiment = "start",
          .bounds = {.stages = 1, .actors = static_cast<std::size_t>(processes)},
          .hosts = std::move(hosts)};
}

std::string refusal(Lead& lead) {
  const auto started = lead.start();
  return started ? "none" : started.error().message;
}

/// A node's to the invitation; its channel's end is nowhere.
proto::Joined answer() {
  proto::Joined joined;
  joined.set_version("version");
  joined.set_cast("cast");
  joined.set_protocol(kWireProtocol);
  joined.set_key(std::string(kRunKeySize, '0'));
  (*joined.mutable_endpoints())[0] = "127.0.0.1:9";
  return joined;
}

Patience enough() {
  return {.until = std::chrono::steady_clock::now() + kEnough};
}

}  // namespace

TEST_CASE("nodes that say nothing for a while are waited for together, so many at a time") {
  const auto folder = std::filesystem::temp_directory_path() / concat("start-test-", ::getpid());
  REQUIRE(make_keys(folder, {"127.0.0.1"}));
  auto credentials = Credentials::load(folder / "127.0.0.1");
  std::filesystem::remove_all(folder);
  REQUIRE(credentials);
  constexpr int kHosts = Lead::kAtOnce + 8;
  Gate gate(Lead::kAtOnce);
  const StandIns nodes([&gate](int socket) {
    gate.pass();
    ::close(socket);
  });
  Lead::Config c = config(nodes.hosts(kHosts));
  c.credentials = std::make_shared<const Credentials>(*std::move(credentials));
  Lead lead(std::move(c));
  const std::string why = refusal(lead);
  CHECK(gate.most() == Lead::kAtOnce);
  CHECK(lead.missing_process() == 1);
  for (int number = 1; number <= kHosts; ++number) {
    CHECK_THAT(why, says(nodes.host(number).text() + " is not believed"));
  }
}

TEST_CASE("the first of the nodes that cannot be reached is the one that is missing") {
  constexpr int kHosts = 5;
  const StandIns nodes([](int socket) {
    DescriptorStream lead(socket, socket);
    proto::Join invitation;
    read_message(lead, invitation, enough());
  });
  std::vector<HostPlace> hosts = nodes.hosts(kHosts);
  hosts[1].address.port = hosts[3].address.port = 1;
  Lead lead(config(hosts));
  const std::string why = refusal(lead);
  CHECK(why ==
        "127.0.0.2:1 cannot be reached: Connection refused; 127.0.0.4:1 cannot be reached: "
        "Connection refused");
  CHECK(lead.missing_process() == 2);
}

TEST_CASE("all nodes that have not answered in time are named, and no other") {
  constexpr int kHosts = 4;
  std::mutex mutex;
  int visitors = 0;
  const StandIns nodes([&](int socket) {
    DescriptorStream lead(socket, socket);
    proto::Join invitation;
    const Talk said = read_message(lead, invitation, enough());
    if (said == Talk::done && invitation.process() == 2) {
      write_message(lead, answer(), enough());
    }
    {
      const std::lock_guard lock(mutex);
      ++visitors;
    }
    await_silence(lead);
  });
  Lead::Config c = config(nodes.hosts(kHosts));
  c.limits.join = 1s;
  std::string expected;
  for (const int number : {1, 3, 4}) {
    expected += concat(expected.empty() ? "" : "; ",
                       "process ",
                       number,
                       " on ",
                       nodes.host(number).text(),
                       " has not answered within 1 s");
  }
  {
    Lead lead(std::move(c));
    CHECK(refusal(lead) == expected);
    CHECK(lead.missing_process() == 1);
  }
  const std::lock_guard lock(mutex);
  CHECK(visitors == kHosts);
}

TEST_CASE("the clocks of all nodes are asked for together") {
  constexpr int kHosts = 20;
  Gate gate(kHosts);
  const StandIns nodes([&gate](int socket) {
    DescriptorStream lead(socket, socket);
    proto::Join invitation;
    proto::Connect where;
    proto::Begin begin;
    bool talks = read_message(lead, invitation, enough()) == Talk::done &&
                 write_message(lead, answer(), enough()) == Talk::done &&
                 read_message(lead, where, enough()) == Talk::done &&
                 write_message(lead, proto::Connect{}, enough()) == Talk::done &&
                 read_message(lead, begin, enough()) == Talk::done;
    gate.pass();
    while (talks && begin.tell_clock()) {
      proto::ClockTold told;
      told.set_now_ns(1);
      talks = write_message(lead, told, enough()) == Talk::done &&
              read_message(lead, begin, enough()) == Talk::done;
    }
  });
  int lost = 0;
  Cast cast = directed_by([&lost](Message message, double, Effects& fx) {
    lost += holds_alternative<Down>(message) ? 1 : 0;
    if (lost == kHosts) {
      fx.finish({});
    }
  });
  for (int p = 1; p <= kHosts; ++p) {
    cast.starting.push_back(add(cast, concat("machine-", p), 0, [](Message, double, Effects&) {}));
  }
  Lead lead(config(nodes.hosts(kHosts)));
  REQUIRE(refusal(lead) == "none");
  Ledger none;
  const Ending ending = run_on_threads(
      cast, none, {.others = &lead, .stall_seconds = std::numeric_limits<double>::infinity()});
  CHECK(ending.exit_code == 0);
  CHECK(lost == kHosts);
  CHECK(gate.most() == kHosts);
}

}  // namespace start_test
