#include "runtime/cluster/channel.hpp"

#include "apps/bench/benches.hpp"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/tcp.hpp"
#include "runtime/cluster/ucx_plane.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace troupe {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;
constexpr const char* kLoopback = "127.0.0.1";
constexpr std::int64_t kAheadMax = 64 * kMebibyte;  // bytes that the receiver has not got yet

Channel::Events events(std::function<void(Parcel)> parcel) {
  return {
      .parcel = [parcel = std::move(parcel)](int, Parcel p) { parcel(std::move(p)); },
      .broken =
          [](int, const std::string& why) {
            TROUPE_CHECK(false, "[bench] a channel broke: ", why);
          },
      .failed =
          [](const std::string& why) { TROUPE_CHECK(false, "[bench] a channel failed: ", why); },
      .tick = [] {},
      .readable =
          [](int) {
          }};
}

/// What lies between the two ends.
enum class Between { processes, hosts };

struct Way {
  Between between;
  Transport transport;
};

void connect_ends(Channel& from, Channel& to, Between between) {
  if (between == Between::hosts) {
    const std::string endpoint = from.listen_at(1, kLoopback);
    from.expect(1, to.public_key());
    to.connect(0, endpoint, from.public_key());
  } else {
    to.connect(0, from.listen(1, ::getpid()));
  }
}

/// Seconds for `count` tensors of `size` bytes.
double over_channel(const Way& way, std::int64_t size, std::int64_t count) {
  Stream stream(Device{});
  const Tensor tensor = stream.allocate({size / 4});
  fill(stream, tensor, 1);
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t got = 0;
  Channel from(0, "bench", 0, 0, way.transport);
  Channel to(1, "bench", 0, 0, way.transport);
  connect_ends(from, to, way.between);
  from.open(events([](Parcel) {}));
  to.open(events([&](Parcel) {
    const std::lock_guard lock(mutex);
    ++got;
    changed.notify_one();
  }));
  const auto send_all = [&](std::int64_t last) {
    const std::int64_t ahead = std::max<std::int64_t>(2, kAheadMax / size);
    for (std::int64_t sent = got; sent < last; ++sent) {
      from.send(1, {.content = {.bytes = {}, .tensors = {tensor}}});
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return sent + 1 - got < (sent + 1 < last ? ahead : 1); });
    }
  };
  send_all(1);  // the connection stands
  return seconds_of([&] { send_all(1 + count); });
}

/// Seconds that each of `count` parcels without a tensor takes to the other end and back, in rising order. `full`: tensors
/// of 16 MiB are on their way to the same end all the time.
std::vector<double> round_trips(const Way& way, bool full, int count) {
  Stream stream(Device{});
  const Tensor tensor = stream.allocate({16 * kMebibyte / 4});
  fill(stream, tensor, 1);
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t sent = 0;
  std::int64_t got = 0;
  int back = 0;
  bool over = !full;
  Channel from(0, "bench", 0, 0, way.transport);
  Channel to(1, "bench", 0, 0, way.transport);
  connect_ends(from, to, way.between);
  const auto count_one = [&](auto& what) {
    const std::lock_guard lock(mutex);
    ++what;
    changed.notify_all();
  };
  from.open(events([&](Parcel) { count_one(back); }));
  to.open(events([&](Parcel parcel) {
    if (parcel.content.tensors.empty()) {
      to.send(0, std::move(parcel));
    } else {
      count_one(got);
    }
  }));
  std::thread load([&] {
    std::unique_lock lock(mutex);
    while (!over) {
      from.send(1, {.content = {.bytes = {}, .tensors = {tensor}}});
      ++sent;
      changed.wait(lock, [&] { return over || sent - got < kAheadMax / (16 * kMebibyte); });
    }
    changed.wait(lock, [&] { return got == sent; });
  });
  std::vector<double> trips;
  for (int i = 0; i <= count; ++i) {
    trips.push_back(seconds_of([&] {
      from.send(1, {.recipient = 1});
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return back == i + 1; });
    }));
  }
  {
    const std::lock_guard lock(mutex);
    over = true;
    changed.notify_all();
  }
  load.join();
  trips.erase(trips.begin());  // with which the connection was made
  std::sort(trips.begin(), trips.end());
  return trips;
}

std::array<int, 2> connected_sockets(Between between) {
  std::array<int, 2> ends{};
  if (between == Between::processes) {
    TROUPE_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0,
                 "[bench] a pair of sockets");
    return ends;
  }
  std::string who;
  const int listening = listen_at({kLoopback, 0}, Nearness::this_machine).value();
  ends[0] = connect_to(parse_address(near_address(listening)).value(), Nearness::this_machine, {})
                .value();
  ends[1] = accept_one(listening, who);
  TROUPE_CHECK(ends[1] >= 0, "[bench] a connection");
  ::close(listening);
  for (const int end : ends) {
    ::fcntl(end, F_SETFL, 0);  // the calls below wait
  }
  return ends;
}

/// The same over a bare pair of sockets.
double over_sockets(Between between, std::int64_t size, std::int64_t count) {
  const std::array<int, 2> ends = connected_sockets(between);
  std::vector<char> out(static_cast<std::size_t>(size), 1);
  std::vector<char> in(static_cast<std::size_t>(size), 1);
  const double seconds = seconds_of([&] {
    std::thread sender([&] {
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t at = 0; at < size;) {
          at += std::max<ssize_t>(0,
                                  ::send(ends[0],
                                         &out[static_cast<std::size_t>(at)],
                                         static_cast<std::size_t>(size - at),
                                         MSG_NOSIGNAL));
        }
      }
    });
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t at = 0; at < size;) {
        at += std::max<ssize_t>(0,
                                ::recv(ends[1],
                                       &in[static_cast<std::size_t>(at)],
                                       static_cast<std::size_t>(size - at),
                                       0));
      }
    }
    sender.join();
  });
  for (const int descriptor : ends) {
    ::close(descriptor);
  }
  return seconds;
}

/// A row a size.
void add_rows(Rows& rows, const Way& way, double seconds) {
  for (const std::int64_t mebibytes : {1, 16, 64}) {
    const std::int64_t size = mebibytes * kMebibyte;
    const auto count =
        static_cast<std::int64_t>(std::ceil(seconds * 100 / static_cast<double>(mebibytes)));
    std::vector<double> rates;
    std::vector<double> bare;
    std::vector<double> shares;
    for (int round = 0; round < turns(seconds, 5); ++round) {
      const double bytes = static_cast<double>(size * count);
      rates.push_back(bytes / over_channel(way, size, count));
      bare.push_back(bytes / over_sockets(way.between, size, count));
      shares.push_back(rates.back() / bare.back());
    }
    const bool hosts = way.between == Between::hosts;
    const bool ucx = way.transport == Transport::ucx;
    rows.push_back(
        {concat("tensors of ",
                mebibytes,
                hosts ? " MiB between two hosts' ends" : " MiB between two processes' ends",
                ucx     ? " over UCX"
                : hosts ? ", encrypted"
                        : ""),
         number("%.0f MB/s", median(rates) / 1e6),
         number(hosts ? "bare TCP, %.0f MB/s" : "bare sockets, %.0f MB/s", median(bare) / 1e6),
         number("%.0f %%", 100 * median(shares)),
         hosts ? ">= 45 %" : ">= 70 %"});
  }
}

/// What machines have to say to those of another process, beside tensors that others send there: the middle round trip,
/// and the 99th of a hundred, alone and beside tensors.
Row control_row(const Way& way, double seconds) {
  const int count = std::max(20, static_cast<int>(seconds * 100));
  const auto both = [&](bool full) {
    const std::vector<double> trips = round_trips(way, full, count);
    const auto at = [&](double share) {
      return 1e3 * trips[static_cast<std::size_t>(share * static_cast<double>(trips.size()))];
    };
    return concat(number("%.2f", at(0.5)), " and ", number("%.2f ms", at(0.99)));
  };
  const std::string alone = both(false);
  return {fill_in("a small parcel to another {} and back beside tensors, p50 and p99",
                  way.between == Between::hosts ? "host" : "process"),
          both(true),
          "alone " + alone,
          "",
          way.between == Between::hosts ? "<= 2, 10 ms" : "<= 1, 10 ms"};
}

}  // namespace

Result<Rows> channels(double seconds, Transport transport) {
  if (transport == Transport::ucx) {
    TROUPE_TRY(check_ucx());
  }
  Rows rows;
  add_rows(rows, {Between::processes, transport}, seconds);
  add_rows(rows, {Between::hosts, transport}, seconds);
  rows.push_back(control_row({Between::processes, transport}, seconds));
  rows.push_back(control_row({Between::hosts, transport}, seconds));
  return rows;
}

}  // namespace troupe
