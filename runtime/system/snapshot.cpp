#include "runtime/system/snapshot.hpp"

#include "kernels/check.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string>
#include <utility>

namespace troupe {
namespace {

constexpr std::uint64_t kSequencesMax = std::uint64_t{1} << 62;

/// Those of `state` that go to `id`.
std::vector<Pending> pending_of(RunState& state, ActorId id) {
  std::vector<Pending> own;
  const auto theirs = std::stable_partition(
      state.pending.begin(), state.pending.end(), [id](const Pending& p) { return p.to == id; });
  std::move(state.pending.begin(), theirs, std::back_inserter(own));
  state.pending.erase(state.pending.begin(), theirs);
  return own;
}

bool is_time(double seconds) {
  return std::isfinite(seconds) && seconds >= 0;
}

void expect(bool sound, const char* what) {
  if (!sound) {
    throw ArchiveError(concat("the state has ", what));
  }
}

void expect_sound(const Pending& p, const Cast& cast, const RunBounds* bounds) {
  expect(is_time(p.time), "a message that is due at an impossible time");
  expect(p.sequence < kSequencesMax, "a message with an impossible number");
  expect(p.message.from < cast.members.size() || p.message.from == kOutside,
         "a message of a machine that this run does not have");
  expect(understands(cast.members[p.to].machine->role(), p.message),
         "a message that its recipient does not understand");
  if (bounds) {
    check_kept_bounds(p.message, *bounds, p.to);
  }
}

void expect_sound(const RunState& state, const Cast& cast) {
  expect(is_time(state.now), "an impossible time");
  expect(state.delivered < kSequencesMax, "more deliveries than there can be");
  expect(state.free_at.size() <= static_cast<std::size_t>(cast.threads) &&
             std::all_of(state.free_at.begin(), state.free_at.end(), is_time),
         "threads that this run does not have");
  for (const std::vector<ActorId>* ids : {&state.gone, &state.members}) {
    const std::set<ActorId> once(ids->begin(), ids->end());
    expect(once.size() == ids->size() && (once.empty() || *once.rbegin() < cast.members.size()),
           "a machine that this run does not have, or one twice");
  }
}

/// The messages to a machine stand behind it: what it lends to them (Archive::lend) is there.
void archive_member(Archive& a,
                    const Cast::Member& member,
                    ActorId id,
                    std::vector<Pending>& pending) {
  a.set_device(member.device);
  std::string name = member.name;
  a(name);
  if (name != member.name) {
    throw ArchiveError(concat("the state has ", name, " where this run has ", member.name));
  }
  member.machine->archive(a);
  std::uint64_t count = pending.size();
  a(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    Pending& p = a.reading() ? pending.emplace_back() : pending[i];
    a(p.time, p.sequence, p.to, p.message.from);
    if (p.to != id) {
      throw ArchiveError("a message of another stands among its own");
    }
    a(p.message);
  }
}

std::vector<ActorId> all_here(const Cast& cast) {
  std::vector<ActorId> here;
  for (std::size_t id = 0; id < cast.members.size(); ++id) {
    if (cast.members[id].machine) {
      here.push_back(static_cast<ActorId>(id));
    }
  }
  return here;
}

void append(auto& to, auto&& from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

/// What another process has written, as if it had been written here.
void add(RunState& state, RunState theirs) {
  append(state.pending, std::move(theirs.pending));
  append(state.gone, std::move(theirs.gone));
  append(state.members, std::move(theirs.members));
  state.free_at.resize(std::max(state.free_at.size(), theirs.free_at.size()));
  for (std::size_t i = 0; i < theirs.free_at.size(); ++i) {
    state.free_at[i] = std::max(state.free_at[i], theirs.free_at[i]);
  }
}

void archive_elsewhere(Archive& a, Cast& cast, RunState& state) {
  a.set_device(Device{});
  if (!a.reading()) {
    a.share_tensors();  // nobody else has them
  }
  a(state.elsewhere);
  if (a.reading()) {
    for (Archived& one : std::exchange(state.elsewhere, {})) {
      Archive part(std::move(one));
      RunState theirs;
      theirs.bounds = state.bounds;
      archive_part(part, cast, theirs);
      part.expect_end();
      add(state, std::move(theirs));
    }
  }
}

}  // namespace

void Machine::archive(Archive& /*a*/) {
  throw ArchiveError("it keeps something that it cannot write down (Machine::archive)");
}

bool earlier(const Pending& x, const Pending& y) {
  return x.time != y.time ? x.time < y.time : x.sequence < y.sequence;
}

void archive_part(Archive& a, Cast& cast, RunState& state) {
  if (!a.reading() && state.members.empty()) {
    state.members = all_here(cast);
  }
  a(state.now, state.delivered, state.gone, state.free_at, state.members);
  if (a.reading()) {
    expect_sound(state, cast);
  }
  std::vector<Pending> all;
  for (const ActorId id : state.members) {
    std::vector<Pending> pending = pending_of(state, id);
    const Cast::Member& member = cast.members[id];
    try {
      if (!member.machine) {
        throw ArchiveError("it plays in another process");
      }
      archive_member(a, member, id, pending);
      for (const Pending& p : pending) {
        if (a.reading()) {
          expect_sound(p, cast, state.bounds);
        }
      }
    } catch (const ArchiveError& error) {
      throw ArchiveError(concat(member.name, ": ", error.what()));
    }
    append(all, std::move(pending));
  }
  append(state.pending, std::move(all));
}

void archive_run(Archive& a, Cast& cast, RunState& state) {
  archive_part(a, cast, state);
  archive_elsewhere(a, cast, state);
}

void expect_all(const Cast& cast, const RunState& read) {
  std::set<ActorId> told(read.members.begin(), read.members.end());
  told.insert(read.gone.begin(), read.gone.end());
  for (std::size_t id = 0; id < cast.members.size(); ++id) {
    if (!told.contains(static_cast<ActorId>(id))) {
      throw ArchiveError(concat("the state has no ", cast.members[id].name));
    }
  }
}

}  // namespace troupe
