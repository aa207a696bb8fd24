#include "runtime/record/trace_file.hpp"

#include "perfetto.pb.h"
#include "runtime/data/mapped_file.hpp"
#include "runtime/record/output_file.hpp"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

namespace troupe {
namespace {

namespace pf = perfetto;

/// What happens on a track at a time.
struct Mark {
  std::int64_t at = 0;
  std::uint32_t track = 0;
  pf::TrackEvent::Type type = pf::TrackEvent::TYPE_SLICE_BEGIN;
  std::size_t index = 0;  // of the slice, or of the value
  const TraceEvent* event =
      nullptr;  // that it shows: those of the same time stand in the events' order
};

/// Slices that begin or end at the same time stand so that those of a track nest.
void add_slices(const TraceTrack& track, std::uint32_t number, std::vector<Mark>& marks) {
  std::vector<std::pair<std::int64_t, std::size_t>> open;  // ends
  const TraceEvent* event = nullptr;                       // the last of the track
  const auto close = [&](std::int64_t until) {
    for (; !open.empty() && open.back().first <= until; open.pop_back()) {
      const auto [end, index] = open.back();
      marks.push_back({end, number, pf::TrackEvent::TYPE_SLICE_END, index, event});
    }
  };
  for (std::size_t i = 0; i < track.slices.size(); ++i) {
    const TraceSlice& slice = track.slices[i];
    close(slice.start);
    event = slice.event;
    const std::int64_t end = open.empty() ? slice.end : std::min(slice.end, open.back().first);
    marks.push_back({slice.start, number, pf::TrackEvent::TYPE_SLICE_BEGIN, i, event});
    open.emplace_back(end, i);
    if (end == slice.start) {
      close(end);
    }
  }
  close(std::numeric_limits<std::int64_t>::max());
}

std::vector<Mark> marks_of(const std::vector<TraceTrack>& tracks) {
  std::vector<Mark> marks;
  for (std::size_t t = 0; t < tracks.size(); ++t) {
    const auto number = static_cast<std::uint32_t>(t);
    add_slices(tracks[t], number, marks);
    for (std::size_t i = 0; i < tracks[t].values.size(); ++i) {
      marks.push_back({.at = tracks[t].values[i].first,
                       .track = number,
                       .type = pf::TrackEvent::TYPE_COUNTER,
                       .index = i});
    }
  }
  std::stable_sort(marks.begin(), marks.end(), [](const Mark& x, const Mark& y) {
    return x.at != y.at ? x.at < y.at : std::less<>()(x.event, y.event);
  });
  return marks;
}

class Writer {
 public:
  Writer(OutputFile& file,
         const std::vector<TraceTrack>& tracks,
         const std::vector<TracedRun::Actor>& actors)
      : file_(file), tracks_(tracks), actors_(actors) {}

  void write() {
    for (std::size_t t = 0; t < tracks_.size(); ++t) {
      describe(t);
    }
    for (const Mark& mark : marks_of(tracks_)) {
      tell(mark);
    }
  }

 private:
  static std::uint64_t uuid(std::size_t track) { return track + 1; }

  /// Where what is put is written.
  pf::TracePacket& packet() {
    trace_.Clear();
    return *trace_.add_packet();
  }

  void put() { file_.write(trace_.SerializeAsString()); }

  void describe(std::size_t number) {
    const TraceTrack& track = tracks_[number];
    pf::TrackDescriptor& told = *packet().mutable_track_descriptor();
    told.set_uuid(uuid(number));
    told.set_name(track.name);
    told.set_child_ordering(pf::TrackDescriptor::EXPLICIT);
    told.set_sibling_order_rank(static_cast<std::int32_t>(number));
    if (track.parent != TraceTrack::kRoot) {
      told.set_parent_uuid(uuid(track.parent));
    }
    if (track.counts) {
      told.mutable_counter()->set_unit(track.bytes ? pf::CounterDescriptor::UNIT_SIZE_BYTES
                                                   : pf::CounterDescriptor::UNIT_COUNT);
    }
    put();
  }

  void tell(const Mark& mark) {
    const TraceTrack& track = tracks_[mark.track];
    pf::TracePacket& said = packet();
    said.set_timestamp(static_cast<std::uint64_t>(std::max<std::int64_t>(0, mark.at)));
    said.set_trusted_packet_sequence_id(1);
    pf::TrackEvent& event = *said.mutable_track_event();
    event.set_type(mark.type);
    event.set_track_uuid(uuid(mark.track));
    if (mark.type == pf::TrackEvent::TYPE_COUNTER) {
      event.set_counter_value(track.values[mark.index].second);
    } else if (mark.type == pf::TrackEvent::TYPE_SLICE_BEGIN) {
      tell(track.slices[mark.index], event);
    }
    put();
  }

  void tell(const TraceSlice& slice, pf::TrackEvent& event) const {
    event.set_name(std::string(slice.name));
    event.add_categories(slice.category);
    for (const std::uint64_t flow : slice.flows) {
      event.add_flow_ids(flow);
    }
    for (const std::uint64_t flow : slice.flows_in) {
      event.add_terminating_flow_ids(flow);
    }
    if (!slice.event) {
      return;
    }
    const auto number = [&event](const char* name, std::int64_t value) {
      pf::DebugAnnotation& note = *event.add_debug_annotations();
      note.set_name(name);
      note.set_int_value(value);
    };
    const Stamp& stamp = slice.event->stamp;
    number("replica", stamp.replica);
    number("chunk", stamp.chunk);
    number("mini-batch", stamp.batch);
    number("micro-batch", stamp.micro_batch);
    if (slice.version >= 0) {
      number("version", slice.version);
      number("step", slice.step);
    }
    if (slice.event->kind != TraceEvent::Kind::job && slice.event->other < actors_.size()) {
      pf::DebugAnnotation& note = *event.add_debug_annotations();
      note.set_name(slice.event->kind == TraceEvent::Kind::packed ? "to" : "from");
      note.set_string_value(actors_[slice.event->other].name);
    }
  }

  OutputFile& file_;
  const std::vector<TraceTrack>& tracks_;
  const std::vector<TracedRun::Actor>& actors_;
  pf::Trace trace_;
};

/// Adds up a file's packets, which stand in order.
class LedgerReader {
 public:
  /// False where it is none of ours.
  bool take(const pf::TracePacket& packet) {
    if (packet.has_track_descriptor()) {
      const pf::TrackDescriptor& track = packet.track_descriptor();
      tracks_[track.uuid()] = {.name = track.name(), .parent = track.parent_uuid()};
      return true;
    }
    const pf::TrackEvent& event = packet.track_event();
    const auto at = static_cast<std::int64_t>(packet.timestamp());
    const auto found = tracks_.find(event.track_uuid());
    if (!packet.has_track_event() || found == tracks_.end()) {
      return false;
    }
    Track& track = found->second;
    if (event.type() == pf::TrackEvent::TYPE_SLICE_BEGIN) {
      ++ledger_.slices;
      ledger_.flows += event.terminating_flow_ids_size();
      track.open.emplace_back(at, event.categories_size() > 0 ? event.categories(0) : "");
    } else if (event.type() == pf::TrackEvent::TYPE_SLICE_END) {
      if (track.open.empty()) {
        return false;
      }
      const auto [start, category] = track.open.back();
      track.open.pop_back();
      if (track.open.empty()) {  // else it is part of another one's time
        track.spent[category] += at - start;
      }
    } else if (event.type() == pf::TrackEvent::TYPE_COUNTER) {
      track.value = event.counter_value();
    }
    return true;
  }

  TraceLedger ledger() {
    std::map<std::uint64_t, TraceLedger::Row> rows;  // by the actor's track
    for (const auto& [uuid, track] : tracks_) {
      if (const auto run = track.spent.find("run"); run != track.spent.end()) {
        ledger_.nanoseconds = run->second;
      }
      if (track.name == "waiting") {
        rows[track.parent] = {tracks_[tracks_[track.parent].parent].name,
                              tracks_[track.parent].name};
      }
    }
    for (const auto& [uuid, track] : tracks_) {
      const auto row = rows.find(track.parent);
      for (std::size_t i = 0; i < kSpent.size() && row != rows.end(); ++i) {
        const auto spent = track.spent.find(kSpent[i]);
        row->second.spent[i] += spent == track.spent.end() ? 0 : spent->second;
      }
      if (row != rows.end() && track.name == kBytesSent) {
        row->second.bytes = track.value;
      }
    }
    for (auto& [uuid, row] : rows) {
      ledger_.rows.push_back(std::move(row));
    }
    return std::move(ledger_);
  }

 private:
  struct Track {
    std::string name;
    std::uint64_t parent = 0;
    std::map<std::string, std::int64_t> spent{};  // nanoseconds, by category
    std::vector<std::pair<std::int64_t, std::string>> open{};
    std::int64_t value = 0;  // of a counter, the last
  };

  std::map<std::uint64_t, Track> tracks_;
  TraceLedger ledger_;
};

}  // namespace

Result<void> write_trace(const std::filesystem::path& path,
                         const std::vector<TraceTrack>& tracks,
                         const std::vector<TracedRun::Actor>& actors) {
  return replace_file(path, [&](OutputFile& file) { Writer(file, tracks, actors).write(); });
}

Result<TraceLedger> read_ledger(const std::filesystem::path& path) {
  const auto is_none = [&path](const std::string& why) {
    return Error{ErrorKind::data, concat(path.string(), ": ", why)};
  };
  const auto file = MappedFile::open(path);
  if (!file) {
    return is_none(file.error().message);
  }
  const std::span<const std::byte> bytes = (*file)->bytes();
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    return is_none("it is longer than 2 GiB; a smaller record.trace_events makes a shorter one");
  }
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  constexpr std::uint32_t kPacketTag = 10;  // field 1, with its length
  LedgerReader reader;
  pf::TracePacket packet;
  while (const std::uint32_t tag = in.ReadTag()) {
    std::uint32_t size = 0;
    const bool whole = tag == kPacketTag && in.ReadVarint32(&size) &&
                       size <= bytes.size() - static_cast<std::size_t>(in.CurrentPosition());
    if (!whole ||
        !packet.ParseFromArray(bytes.data() + in.CurrentPosition(), static_cast<int>(size)) ||
        !in.Skip(static_cast<int>(size)) || !reader.take(packet)) {
      return is_none("this is no trace of troupe's");
    }
  }
  return reader.ledger();
}

}  // namespace troupe
