#include "runtime/system/snapshot.hpp"

#include "kernels/check.hpp"
#include "messages/fields.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace troupe {
namespace {

/// Those of `state` that go to `id`.
std::vector<Pending> pending_of(RunState& state, ActorId id) {
  std::vector<Pending> own;
  const auto theirs = std::stable_partition(
      state.pending.begin(), state.pending.end(), [id](const Pending& p) { return p.to == id; });
  std::move(state.pending.begin(), theirs, std::back_inserter(own));
  state.pending.erase(state.pending.begin(), theirs);
  return own;
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
    a(p.time, p.sequence, p.to);
    if (p.to != id) {
      throw ArchiveError("a message of another stands among its own");
    }
    archive(a, p.message);
  }
}

}  // namespace

void Machine::archive(Archive& /*a*/) {
  throw ArchiveError("it keeps something that it cannot write down (Machine::archive)");
}

bool earlier(const Pending& x, const Pending& y) {
  return x.time != y.time ? x.time < y.time : x.sequence < y.sequence;
}

void archive_run(Archive& a, Cast& cast, RunState& state) {
  a(state.now, state.delivered, state.gone, state.free_at);
  if (std::any_of(state.gone.begin(), state.gone.end(), [&](ActorId id) {
        return id >= cast.members.size();
      })) {
    throw ArchiveError("the state has a machine that this run has not");
  }
  std::vector<Pending> all;
  for (std::size_t id = 0; id < cast.members.size(); ++id) {
    std::vector<Pending> pending = pending_of(state, static_cast<ActorId>(id));
    try {
      archive_member(a, cast.members[id], static_cast<ActorId>(id), pending);
    } catch (const ArchiveError& error) {
      throw ArchiveError(concat(cast.members[id].name, ": ", error.what()));
    }
    std::move(pending.begin(), pending.end(), std::back_inserter(all));
  }
  state.pending = std::move(all);
}

}  // namespace troupe
