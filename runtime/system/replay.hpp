// A run of the real clock once more, in one thread: the same cast, whose machines get their messages in the
// order that was recorded then, each at the recorded time. A machine's inputs are its messages and that time,
// so all that it does is the same, bit for bit on the CPU. What is on its way waits until the record names it.
#pragma once

#include "runtime/system/driver.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// One delivery of a record.
struct Delivery {
  double now = 0;  // seconds of the run's clock
  ActorId to = 0;
  ActorId from = kOutside;
  std::string_view message;  // as message_name() has it
  Stamp stamp;

  /// Whether `m` is what was delivered.
  bool is(const Message& m) const {
    return m.from == from && message_name(m) == message && message_stamp(m) == stamp;
  }
};

/// By thread: its deliveries in their order.
using Deliveries = std::vector<std::vector<Delivery>>;

/// Where a run and its record part: this delivery of the record cannot be made.
struct Departure {
  std::size_t thread = 0;
  std::size_t delivery = 0;  // of that thread, from 0
  std::string why;           // a sentence
};

class Replay {
 public:
  /// All outlive it. `order` names machines of the cast alone, each on its own thread. `orders`: as
  /// ThreadOptions::orders. Modelled times and factors on seconds are not asked for: they are in the record.
  Replay(Cast& cast,
         const Deliveries& order,
         RecordSink& records,
         std::vector<OrderSink*> orders = {});
  ~Replay();

  /// Makes every delivery of the record. How the run ended: as the Director had it; without its word the run
  /// had stalled, or, where `broken_off`, had been ended by a second interrupt. After a departure exit code 1
  /// with no weights. `interrupted`, asked now and then, ends the replay with 130.
  Ending run(bool broken_off, const std::function<bool()>& interrupted = {});

  const std::optional<Departure>& departure() const { return departure_; }

  std::uint64_t delivered() const { return delivered_; }

 private:
  using Head = std::pair<double, std::size_t>;  // when and where a thread's next delivery is

  const Delivery& next_of(std::size_t thread) const { return order_[thread][made_[thread]]; }

  bool step();
  std::optional<Message> take(const Delivery& next);
  std::optional<Message> lost_with_process(std::int64_t machine);
  std::optional<Message> returned(std::int32_t replica);
  void deliver(const Delivery& next, Message message);
  void carry_out(ActorId from, double now);
  void tell_divergence(const RecordEntry& record);
  void run_jobs(ActorId from);
  void lose(ActorId who, double now, const std::string& cause);
  Departure departure_at(std::size_t thread) const;
  Ending ending_without_word(bool broken_off) const;
  Stream& stream(const Cast::Member& member);

  Cast& cast_;
  const Deliveries& order_;
  RecordSink& records_;
  std::vector<OrderSink*> orders_;
  std::vector<std::size_t> made_;             // by thread: deliveries so far
  std::set<Head> heads_;                      // of the threads that have some left
  std::vector<std::deque<Message>> waiting_;  // by recipient, as they were sent
  std::map<ActorId, std::string> gone_;       // whose handler has thrown, and what
  std::map<std::pair<Device, Precision>, std::unique_ptr<Stream>> streams_;
  Effects fx_;
  bool halted_ = false;  // by an interrupt
  std::optional<Ending> ending_;
  std::optional<Departure> departure_;
  std::uint64_t delivered_ = 0;
};

}  // namespace troupe
