// What each machine does, and when: a part around every machine notes what it is told, says and has computed, and what it
// waits for. The machines and the drivers know nothing of it, and where it is not wanted it is not there.
//
// Times are of the run's clock. On the virtual clock they are the modelled ones, so that a trace is as repeatable as its run;
// on the real clock a part measures how long a message or a job takes. record/trace_timeline.hpp makes a picture of it.
#pragma once

#include "kernels/result.hpp"
#include "runtime/system/machine.hpp"
#include "runtime/system/time_model.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Something that machine `who` has done. Times are nanoseconds of the run's clock.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    handled,  // a message of `other`
    sent,  // a message to `other`; `number`: bytes of its tensors, where another's takes the time of a link
    job,  // of a kernel; `what`: the Work; `number`: bytes that it puts into the stash; `second`: when it was asked for
    waited,  // `what`: the Want
    applied,  // a gradient; `number`: the version that it was applied to; `second`: the oldest that it has read
    read,  // a version, `number`, of a step, `second`, by a micro-batch; `what`: 0: forward, 1: backward
    packed,    // a message to `other`, which plays in another process
    unpacked,  // a message of `other`, which does
  };
  static constexpr std::uint8_t kKinds = 8;

  std::int64_t start = 0;
  std::int64_t end = 0;
  Stamp stamp{};
  std::int64_t number = 0;
  std::int64_t second = 0;
  ActorId who = 0;
  ActorId other = kOutside;
  std::uint32_t copied =
      0;  // handled, job: nanoseconds of it in which tensors were copied, 4 s at most
  std::uint16_t message = 0;  // its index in Message
  Kind kind = Kind::handled;
  std::uint8_t what = 0;

  void archive(auto& a) {
    a(start, end, stamp.replica, stamp.chunk, stamp.batch, stamp.micro_batch, number, second);
    a(who, other, copied, message, kind, what);
  }
};

class Trace {
 public:
  struct Config {
    std::int64_t events_max = 0;  // the newest that are kept, by whole blocks
    bool virtual_clock = false;
    const TimeModel* times = nullptr;  // where times are modelled; outlives the trace
    std::string host{};                // that this process runs on
  };

  /// What one process has noted.
  struct Part {
    std::string host;
    std::int64_t since = 0;  // what was noted of anything before it is not whole
    std::vector<TraceEvent> events;

    /// As take_pieces() has written it. ArchiveError where it is not whole, or tells of what cannot have been among so many
    /// machines.
    static Part read(std::string bytes, std::size_t machines);
  };

  /// Puts its parts around the machines of `cast`, those that are made anew included. It outlives the cast's machines.
  Trace(Cast& cast, Config config);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// A message between processes that `who` packs for `other`, or unpacks from it, as an event without its times.
  static TraceEvent crossing(TraceEvent::Kind kind,
                             ActorId who,
                             ActorId other,
                             const Message& message);
  /// ... from `start` until `end`, seconds of the run's clock. From every thread.
  void crossed(TraceEvent event, double start, double end);

  /// This process's part, by time. Once, when the machines have ended.
  Part take();

  /// The same as bytes, in pieces that a parcel takes, for the process that writes the trace.
  std::vector<std::string> take_pieces();
  /// ... and there. ArchiveError where they are too many. From every thread.
  void add_piece(int process, std::string_view bytes);
  /// The parts that have come so, by process, once. Error (lost) in the place of one that is not whole, or that tells of what
  /// cannot have been among so many machines.
  std::map<int, Result<Part>> others(std::size_t machines);

  class Place;

 private:
  using Block = std::vector<TraceEvent>;
  static constexpr std::size_t kBlock = 512;  // events that a thread notes before it locks anything

  void note(Block& block, const TraceEvent& event);
  void put_around(Cast& cast, ActorId id, std::unique_ptr<Machine>& machine);

  const Config config_;
  std::vector<std::unique_ptr<Place>> places_;  // by thread
  std::deque<Block>
      blocks_;  // by thread; on the virtual clock there is one, so that all keeps its order

  std::mutex crossing_mutex_;
  Block crossings_;  // guarded by it

  std::mutex mutex_;  // guards the rest
  std::deque<Block> full_;
  std::int64_t since_ = 0;
  std::map<int, std::string> pieces_;
};

}  // namespace troupe
