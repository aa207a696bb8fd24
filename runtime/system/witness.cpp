#include "runtime/system/witness.hpp"

#include "messages/copies.hpp"
#include "messages/tensor_bytes.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// Updates that a push may wait for: one of every replica, twice over.
constexpr std::int64_t kPatience = 2;

const void* where(const Tensor& tensor) {
  return tensor ? bytes_of(tensor).data() : nullptr;  // a codec's message is not of float32
}

template <class... Ts>
void law(bool holds, const char* name, const Ts&... seen) {
  if (!holds) {
    throw LawBroken(concat("a law of runs with faults is broken (", name, "): ", seen...));
  }
}

std::string named(const auto& push) {
  return concat("push ", push.sequence, " of replica ", push.replica);
}

}  // namespace

void Witness::delivered(ActorId from, ActorId to, std::uint64_t number) {
  if (number == 0) {
    return;
  }
  Link& link = links_[{from, to}];
  law(number == link.come + 1,
      "link",
      "message ",
      number,
      " of machine ",
      from,
      " to machine ",
      to,
      " comes after message ",
      link.come);
  link.come = number;
}

void Witness::renewed(ActorId id) {
  std::erase_if(
      links_, [id](const auto& link) { return link.first.first == id || link.first.second == id; });
}

void Witness::watch_copies(const std::map<ActorId, std::vector<ActorId>>& copies) {
  for (const auto& [first, others] : copies) {
    for (const ActorId copy : others) {
      first_of_[copy] = first;
    }
  }
  copies_ = copies;
}

/// Of its copies; itself where it has no other.
ActorId Witness::first_of(ActorId server) const {
  const auto found = first_of_.find(server);
  return found == first_of_.end() ? server : found->second;
}

/// What servers knew of the one before says nothing of it.
void Witness::returned(std::int32_t replica) {
  dead_.erase(replica);
  ++lives_[replica];
  for (auto& [id, server] : servers_) {
    server.replicas.erase(replica);
  }
  for (auto& [id, replicas] : told_) {
    replicas.erase(replica);
  }
}

void Witness::sent(ActorId from, const Message& message) {
  if (const auto* answer = get_if<Answer>(&message)) {
    answered(from, *answer);
  }
}

void Witness::delivered(ActorId to, const Message& message) {
  if (const auto* upload = get_if<Upload>(&message)) {
    arrived(servers_[to], *upload);
  } else if (const auto* combine = get_if<Combine>(&message)) {
    servers_[message.from].optimizer = to;
    taken(message.from, *combine);
  } else if (const auto* combined = get_if<Combined>(&message)) {
    made(servers_[to], *combined);
  } else if (holds_alternative<Verdict>(message)) {
    servers_[to].follows = true;
  }
}

void Witness::arrived(Server& server, const Upload& m) {
  server.chunk = m.stamp.chunk;
  server.slice = m.slice;
  Replica& sender = server.replicas[m.stamp.replica];
  if (m.sequence <= sender.come || !sender.early.insert(m.sequence).second) {
    return;  // it has come before, and must not count
  }
  while (!sender.early.empty() && *sender.early.begin() == sender.come + 1) {
    sender.early.erase(sender.early.begin());
    ++sender.come;
  }
  if (m.contribution.values.empty()) {
    return;
  }
  const Push push{.replica = m.stamp.replica,
                  .sequence = m.sequence,
                  .version = server.version,
                  .of_dead = dead_.contains(m.stamp.replica),
                  .life = life(m.stamp.replica)};
  const auto [place, free] = server.waiting.try_emplace(where(m.contribution.values.front()), push);
  if (!free && !server.over &&
      !place->second.of_dead) {  // the tensor that had this place is gone, and was in no update
    ++server.vanished;
    server.last_vanished = named(place->second);
  }
  place->second = push;
}

void Witness::taken(ActorId id, const Combine& m) {
  Server& server = servers_[id];
  law(m.update.version > server.version,
      "forward",
      "an update of version ",
      m.update.version,
      " follows one of version ",
      server.version);
  law(!server.newest || server.newest == where(m.update.base),
      "chain",
      "an update of version ",
      m.update.version,
      " does not begin with what the one before it has made");
  server.version = m.update.version;
  for (const Contribution& part : m.update.contributions) {
    server.replicas.try_emplace(part.replica);
    const void* const tensor = where(part.values.front());
    const auto push = server.waiting.find(tensor);
    if (push == server.waiting.end()) {
      law(resumed_,
          "once",
          "version ",
          m.update.version,
          " has a gradient of replica ",
          part.replica,
          " that was applied before, or has never arrived");
      continue;
    }
    law(push->second.life != life(part.replica) ||
            push->second.sequence > told_[first_of(id)][part.replica].holds,
        "kept",
        named(push->second),
        " was told to be in the weights before it was");
    server.in_work[part.replica].push_back(push->second);
    server.waiting.erase(push);
  }
}

void Witness::made(Server& server, const Combined& m) {
  server.newest = where(m.updated.next);
  server.in_work.clear();
}

void Witness::answered(ActorId id, const Answer& m) {
  if (m.pinned) {
    return;
  }
  const ActorId first = first_of(id);
  servers_[id].replicas.try_emplace(m.replica);  // one that it knows
  Told& told = told_[first][m.replica];
  told.holds = std::max(told.holds, m.holds);
  const auto work_in_no_more = [&](ActorId copy) {
    const auto known = servers_.find(copy);
    if (known == servers_.end() || is_lost(copy, known->second)) {
      return;
    }
    const auto own = known->second.in_work.find(m.replica);
    for (std::size_t i = 0; own != known->second.in_work.end() && i < own->second.size(); ++i) {
      const Push& push = own->second[i];
      law(push.life != life(m.replica) || push.sequence > m.holds,
          "kept",
          named(push),
          " is told to be in the weights while it is being worked in");
    }
  };
  work_in_no_more(first);
  if (const auto others = copies_.find(first); others != copies_.end()) {
    std::for_each(others->second.begin(), others->second.end(), work_in_no_more);
  }
  if (m.weights.empty()) {
    return;
  }
  const std::int64_t version = m.weights.front().version;
  if (std::exchange(told.by, id) != id) {
    told.again = true;
  }
  told.again = told.again && version < told.version;
  law(told.again || version >= told.version,
      "forward",
      "replica ",
      m.replica,
      " is answered with version ",
      version,
      " after version ",
      told.version);
  told.version = std::max(told.version, version);
}

void Witness::recorded(const RecordEntry& entry) {
  if (!told_once_.is_news(entry)) {
    return;
  }
  if (const auto* record = std::get_if<AppliedRecord>(&entry)) {
    applied(*record);
  } else if (const auto* told = std::get_if<ServerRecord>(&entry)) {
    for (auto& [id, server] : servers_) {
      if (told->group < 0 && server.chunk == told->chunk && server.slice == told->slice) {
        server.over = true;
        server.dropped = told->dropped;
      }
    }
  } else if (const auto* lost = std::get_if<LossOfReplica>(&entry)) {
    died(lost->replica);
  } else if (const auto* back = std::get_if<ReturnOfReplica>(&entry)) {
    returned(back->replica);
  }
}

void Witness::applied(const AppliedRecord& m) {
  const auto [last, first] =
      applied_.try_emplace({m.stamp.replica, m.stamp.chunk, m.slice}, m.stamp.batch);
  law(first || m.stamp.batch > last->second,
      "once",
      "mini-batch ",
      m.stamp.batch,
      " of replica ",
      m.stamp.replica,
      " is applied to chunk ",
      m.stamp.chunk,
      " after its mini-batch ",
      last->second);
  last->second = m.stamp.batch;
  // A server counts the updates of all; without one each replica counts its own.
  std::int64_t& before =
      applied_to_[{servers_.empty() ? m.stamp.replica : -1, m.stamp.chunk, m.slice}];
  law(m.applied_to >= before,
      "forward",
      "chunk ",
      m.stamp.chunk,
      " records version ",
      m.applied_to,
      " after version ",
      before);
  before = m.applied_to;
}

void Witness::ended() const {
  if (resumed_) {
    return;  // what has come, and whether a server had told its account, is not known
  }
  for (const auto& [id, server] : servers_) {
    if (first_of_.contains(id) || is_lost(id, server)) {
      continue;
    }
    const auto bound = kPatience * static_cast<std::int64_t>(server.replicas.size() + 1);
    const auto left =
        std::count_if(server.waiting.begin(), server.waiting.end(), [&](const auto& waiting) {
          const Push& push = waiting.second;
          const bool gone = dead_.contains(push.replica) || push.life != life(push.replica);
          return gone && !push.of_dead && !server.follows && server.version - push.version > bound;
        });
    law(server.vanished + left <= server.dropped,
        "cost",
        "of pushes that had arrived at the server of chunk ",
        server.chunk,
        " ",
        server.vanished + left,
        " are in no update (the last that is gone: ",
        server.last_vanished,
        "), and it has dropped ",
        server.dropped);
  }
}

void Witness::still(const std::set<ActorId>& gone) const {
  for (const auto& [ends, link] : links_) {
    law(link.come == link.sent || gone.contains(ends.first) || gone.contains(ends.second),
        "link",
        "of ",
        link.sent,
        " messages of machine ",
        ends.first,
        " to machine ",
        ends.second,
        " only ",
        link.come,
        " have come, and no other is under way");
  }
}

}  // namespace troupe
