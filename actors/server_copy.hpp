// One of several copies of a server, in another process or on another host than the others, so that nothing is lost
// with one of them. It holds a ServerShard, which knows nothing of it, and has a ServerOptimizer of its own. A server
// is a state machine: copies that take the same inputs in the same order, at the same times, are equal bit for bit
// (state machine replication, Schneider 1990, in a chain, van Renesse & Schneider 2004).
//
//   replicas' shards, director --Upload, PinnedPull, Membership, ...--> every copy    (fan_out in driver.hpp)
//   first copy --Ordered--> second copy --Ordered--> ... last copy
//   last copy --Confirmed--> all copies before it
//   first copy --Answer, MarkDue, Concluded, ...--> replicas' shards, director
//   copy --Missing--> the copy before it --Resent--> copy
//   director --Succession--> every copy
//
// The first living copy, the *head*, takes what comes at once and tells the next copy in which order. The others keep
// what comes until they are told. The head keeps to itself what its server says, and what it records, until the last
// living copy has taken the input that it follows from: nobody outside knows of an update that only some copies have.
//
// When copies have died, those that are left close up. A copy has taken what all behind it have taken, and perhaps more.
// So one with a new successor sends it again all that is not confirmed. One that becomes the head forgets what it has
// been told and not taken, which nobody alive has, and goes on with what it has kept, in the order in which it has come.
// What the head before it had said may have died with it, so it says again all that somebody may still wait for: the
// last answers, and what the director has to know. Recipients drop what they know.
//
// A head that was given up may go on, and know nothing of it for a while. What it has taken since is confirmed by nobody:
// an order names the head that has made it, and copies before that are told of nothing that follows.
//
// Invariants: an input is taken once by each copy, and as the same number by all that take it. What leaves the head
// follows from inputs that all living copies have taken.
#pragma once

#include "actors/server/copy_outputs.hpp"
#include "messages/bad_sender.hpp"
#include "messages/copies.hpp"
#include "messages/returns.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

class ServerCopy final : public Machine {
 public:
  struct Config {
    std::vector<Ref<ServerCopyRole>> copies;  // of the server, in their order
    std::vector<ActorId> optimizers;          // by copy
    std::size_t index = 0;                    // which of them this is
    std::vector<ActorId> shards;              // by replica: who sends Uploads
  };

  ServerCopy(Config config, std::unique_ptr<Machine> server);

  void on(Message message, double now, Effects& effects) override;
  std::string waits_for() const override;
  Remains remains() const override;
  void archive(Archive& a) override;

  RoleTag role() const override { return ServerCopyRole{}; }

 private:
  /// What has come and is not taken yet.
  struct Kept {
    std::uint64_t arrival = 0;  // counts what has come
    Message message;

    void archive(Archive& a);
  };

  using KeptByName = std::map<InputName, std::deque<Kept>>;

  /// What an order names; empty where nobody would miss it.
  struct Found {
    std::optional<Message> message{};
  };

  /// An input that was taken and is not confirmed.
  struct Taken {
    Ordered order;
    std::optional<Upload> upload;  // that it was
    CopyOutputs held{};            // of the head: what has followed from it

    void archive(Archive& a);
  };

  InputName name_of(const Message& message) const;
  InputName here(InputName name) const;
  void keep(Message message);
  void note_deaths(const Membership& m);
  void take(Message message, const Ordered& order, Effects& fx);
  void hand_over(Message message, double now, Effects& fx);
  CopyOutputs outputs_of(Effects& made, Effects& fx);
  void lead(double now, Effects& fx);
  void follow(Effects& fx);
  std::optional<Found> find(const Ordered& order, Effects& fx);
  Message take_out(KeptByName::iterator place);
  void tell_next(const Ordered& order, Effects& fx);
  void confirm(std::uint64_t number, Effects& fx);
  void confirm_where_last(Effects& fx);
  void tell_confirmed(Effects& fx);
  void resend(const Missing& m, Effects& fx);
  void succeed(const Succession& m, double now, Effects& fx);
  void become_head(double now, Effects& fx);

  std::optional<std::size_t> before() const;
  std::optional<std::size_t> next() const;

  bool leads() const { return !before(); }

  Config c_;
  std::unique_ptr<Machine> server_;
  std::vector<bool> alive_;  // by copy
  std::int64_t epoch_ = 0;   // of the Succession
  KeptByName kept_;
  std::uint64_t arrivals_ = 0;
  std::deque<Ordered> told_;            // to be taken, in this order
  std::uint64_t last_told_ = 0;         // the last number that was told
  std::uint64_t taken_ = 0;             // inputs so far
  std::deque<Taken> unconfirmed_;       // the last of them
  std::uint32_t head_ = 0;              // that has ordered the last of them
  double now_ = 0;                      // when the last input was taken
  std::optional<double> alarm_;         // that the server has asked for
  std::set<ActorId> dead_;              // senders from which nothing more comes
  std::optional<std::uint64_t> asked_;  // Missing, as long as it is not answered
  std::optional<Resent> resent_;        // the answer
  std::set<InputName> again_;           // what was taken so, and may yet come
  SaidAgain said_;
  bool struck_off_ = false;         // the others go on without this one
  std::optional<BadSender> bad_{};  // of the turn that is under way
};

}  // namespace troupe
