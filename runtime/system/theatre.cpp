#include "runtime/system/theatre.hpp"

#include "messages/servers.hpp"

#include <caf/send.hpp>

#include <algorithm>

namespace troupe {
namespace {

constexpr int kJobsAheadMax = 8;          // of a GPU: a thread enqueues no further
constexpr double kDelaySecondsMax = 1e9;  // 32 years; the clock counts nanoseconds in 64 bits

void raise(std::atomic<double>& to_at_least, double value) {
  double last = to_at_least.load(std::memory_order_relaxed);
  while (last < value &&
         !to_at_least.compare_exchange_weak(last, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

Stream& Workplace::stream(const Cast::Member& member) {
  auto& stream = streams[{member.device, member.precision}];
  if (!stream) {
    stream = std::make_unique<Stream>(member.device, member.precision);
  }
  return *stream;
}

void Workplace::keep_pace(Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu) {
    return;
  }
  ahead.push_back(stream.record());
  if (ahead.size() > kJobsAheadMax) {
    ahead.front().wait();
    ahead.pop_front();
  }
}

std::uint64_t Theatre::deliveries() const {
  std::uint64_t all = 0;
  for (const auto& place : workplaces) {
    all += place ? place->deliveries.load(std::memory_order_relaxed) : 0;
  }
  return all;
}

void Theatre::not_before(double at) {
  raise(put_forward, at - own_time());
}

void Theatre::record(RecordBatch batch) {
  unrecorded.fetch_add(1);
  caf::anon_send(recorder, std::move(batch));
}

void Theatre::end(Ending how) {
  if (!ended.exchange(true)) {
    how.seconds = now();
    ending.set_value(std::move(how));
  }
}

void Theatre::lose(std::string cause, LossKind loss) {
  Ending how;
  how.exit_code = static_cast<int>(ErrorKind::lost);
  how.cause = std::move(cause);
  how.loss = loss;
  end(std::move(how));
}

void Theatre::send_later(ActorId to, double seconds, Message message) {
  seconds = std::min(seconds, kDelaySecondsMax);
  const double at = own_time() + seconds;
  raise(due, at);
  if (!holds_alternative<Alarm>(message)) {
    raise(due_from_others, at);
  }
  ports[to]->send(std::move(message),
                  std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

}  // namespace troupe
