#include "apps/bench/channel.hpp"

#include "kernels/check.hpp"
#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/channel.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace troupe {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;
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

/// Seconds for `count` tensors of `size` bytes.
double over_channel(std::int64_t size, std::int64_t count) {
  Stream stream(Device{});
  const Tensor tensor = stream.allocate({size / 4});
  fill(stream, tensor, 1);
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t got = 0;
  Channel from(0, "bench");
  Channel to(1, "bench");
  to.connect(0, from.listen(1, ::getpid()));
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

/// The same over a bare pair of sockets.
double over_sockets(std::int64_t size, std::int64_t count) {
  std::array<int, 2> ends{};
  TROUPE_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0,
               "[bench] a pair of sockets");
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

}  // namespace

Rows channels(double seconds) {
  Rows rows;
  for (const std::int64_t mebibytes : {1, 16, 64}) {
    const std::int64_t size = mebibytes * kMebibyte;
    const auto count =
        static_cast<std::int64_t>(std::ceil(seconds * 100 / static_cast<double>(mebibytes)));
    std::vector<double> rates;
    std::vector<double> bare;
    std::vector<double> shares;
    for (int round = 0; round < turns(seconds, 5); ++round) {
      const double bytes = static_cast<double>(size * count);
      rates.push_back(bytes / over_channel(size, count));
      bare.push_back(bytes / over_sockets(size, count));
      shares.push_back(rates.back() / bare.back());
    }
    rows.push_back({concat("tensors of ", mebibytes, " MiB between two processes' ends"),
                    number("%.0f MB/s", median(rates) / 1e6),
                    number("bare sockets, %.0f MB/s", median(bare) / 1e6),
                    number("%.0f %%", 100 * median(shares)),
                    ">= 70 %"});
  }
  return rows;
}

}  // namespace troupe
