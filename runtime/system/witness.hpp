// Watches a run with faults from outside and ends it, by LawBroken, where it breaks a law. It sees what is
// sent, delivered and recorded, and believes no machine: who has applied what it tells from the tensors that
// a server hands to its optimizer.
//
//   link        a message between hosts comes once, in its sender's order, and to and from the machines
//               that are there now: none that was sent before one of them was made anew
//   once        no push is in two updates, and none that has not arrived; mini-batches of a replica are
//               applied in their order, also where it has come back
//   chain       each update of a server begins with the weights that the one before has made
//   kept        what a server tells a replica to be in the weights is in them, or was given up
//   forward     versions do not fall: a server's answers to a replica, and what records tell
//   cost        pushes that have arrived are in an update, unless the rule drops them: a dead replica's, too
//
// A server may have copies (copied.hpp). Each is watched as a server of its own, but what one of them has
// told a replica they have all told. So `kept` says of them that no update that was acknowledged is lost with a copy: it
// was in the weights of each before it was told. Of `cost` only those are asked that have led from the start: what
// another one has got, and a copy that is dead has not, may be nobody's.
//
// That a run ends, and equal seeds give equal runs, is seen from outside the program
// (tests/tools/fault_schedules.py).
#pragma once

#include "kernels/check.hpp"
#include "messages/message.hpp"
#include "messages/record.hpp"
#include "messages/servers.hpp"
#include "messages/told_once.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe {

/// What no fault may lead to; what() says which law and what was seen.
class LawBroken : public ContractError {
 public:
  using ContractError::ContractError;
};

class Witness {
 public:
  /// `resumed`: the run has begun before it was watched.
  explicit Witness(bool resumed = false) : resumed_(resumed) {}

  /// Cast::copies: by the first copy of a server, stage or other machine of theirs, its further copies. Those of servers are
  /// watched as servers.
  void watch_copies(const std::map<ActorId, std::vector<ActorId>>& copies);

  /// A message that passes a link: its number, which comes with it.
  std::uint64_t passes(ActorId from, ActorId to) { return ++links_[{from, to}].sent; }

  /// Numbers begin at 1; 0: it passes none, or was sent before the run was watched.
  void delivered(ActorId from, ActorId to, std::uint64_t number);

  /// What a machine has sent to another, and what is delivered to one.
  void sent(ActorId from, const Message& message);
  void delivered(ActorId to, const Message& message);
  void recorded(const RecordEntry& entry);

  /// The machine is dead; of servers that have copies.
  void lost(ActorId id) { gone_.insert(id); }

  /// Nothing comes from this replica any more that was not there.
  void died(std::int32_t replica) { dead_.insert(replica); }

  /// The machine was made anew: what was under way to it or from it must not come.
  void renewed(ActorId id);

  /// The run has ended well.
  void ended() const;
  /// Nothing is under way any more. `gone`: machines that are dead.
  void still(const std::set<ActorId>& gone) const;

 private:
  struct Link {
    std::uint64_t sent = 0;
    std::uint64_t come = 0;
  };

  struct Push {
    std::int32_t replica = 0;
    std::uint64_t sequence = 0;
    std::int64_t version = 0;  // of its server, when it came
    bool of_dead = false;      // its replica had been struck off: it need not count
    std::int64_t life = 0;     // how often its replica had come back
  };

  struct Replica {                    // as a server knows it
    std::uint64_t come = 0;           // all up to this one
    std::set<std::uint64_t> early{};  // beyond it
  };

  struct Told {                // to a replica, by a server or a copy of it
    std::uint64_t holds = 0;   // to be in the weights, or given up
    std::int64_t version = 0;  // the last one
    ActorId by = kOutside;     // the last one's copy
    bool again =
        false;  // it has taken the place of another, and says again what that may not have been able to
  };

  struct Server {
    std::int32_t chunk = 0;
    std::size_t slice = 0;
    std::int64_t version = -1;            // of the last update's base
    const void* newest = nullptr;         // weights that the last update has made
    std::map<const void*, Push> waiting;  // arrived, by the tensor that came with them
    std::map<std::int32_t, std::vector<Push>> in_work;  // of the update under way, by replica
    std::map<std::int32_t, Replica> replicas;
    bool follows =
        false;  // another decides, to whom what has come of a dead replica may not have come
    std::int64_t vanished = 0;  // pushes that came, whose tensors are gone: they are in no update
    std::string last_vanished{};
    ActorId optimizer = kOutside;
    bool over = false;         // it has told its account
    std::int64_t dropped = 0;  // as it tells
  };

  void arrived(Server& server, const Upload& upload);
  void taken(ActorId server, const Combine& combine);
  void made(Server& server, const Combined& combined);
  void answered(ActorId server, const Answer& answer);
  ActorId first_of(ActorId server) const;

  /// A copy of a server goes with either of its machines.
  bool is_lost(ActorId id, const Server& server) const {
    return gone_.contains(id) || gone_.contains(server.optimizer);
  }

  void applied(const AppliedRecord& record);
  void returned(std::int32_t replica);

  std::int64_t life(std::int32_t replica) const {
    const auto found = lives_.find(replica);
    return found == lives_.end() ? 0 : found->second;
  }

  bool resumed_;
  std::map<std::pair<ActorId, ActorId>, Link> links_;
  std::map<ActorId, Server> servers_;
  std::map<ActorId, ActorId> first_of_;                   // by further copy of a server
  std::map<ActorId, std::vector<ActorId>> copies_;        // the other way round
  std::map<ActorId, std::map<std::int32_t, Told>> told_;  // by first copy and replica
  std::set<ActorId> gone_;
  std::set<std::int32_t> dead_;
  std::map<std::int32_t, std::int64_t> lives_;  // by replica: how often it has come back
  using Part = std::tuple<std::int32_t, std::int32_t, std::size_t>;  // replica, chunk, slice
  ToldOnce told_once_;
  std::map<Part, std::int64_t> applied_;     // the last mini-batch
  std::map<Part, std::int64_t> applied_to_;  // the last version; with servers of replica -1
};

}  // namespace troupe
