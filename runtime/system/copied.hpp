// One of several copies of a machine, in another process or on another host than the others, so that nothing is lost with
// one of them. It holds the machine, which knows nothing of it. Each copy keeps a journal: the inputs that it has taken, in
// order, as far as another copy may lack them, and what has followed from them, as far as its recipients may lack it. A
// machine is a function of its inbox and the clock: copies that take the same inputs in the same order, at the same times,
// are equal bit for bit (state machine replication, Schneider 1990, in a chain, van Renesse & Schneider 2004).
//
//   callers --what the machine is told--> every copy            (callers.hpp)
//   first copy --ordered--> second copy --ordered--> ... last copy
//   last copy --confirmed--> all copies before it
//   first copy --what the machine says--> callers --heard--> every copy
//   copy --missing--> the copy before it --resent, the input; or nobodys--> copy
//   Census --left, lost--> every copy
//
// The first living copy, the *head*, takes what comes at once and tells the next copy in which order. The others keep
// what comes until they are told. The head keeps to itself what its machine says, and what it records, until the last
// living copy has taken the input that it follows from: nobody outside knows of anything that only some copies have.
//
// When copies have died, those that are left close up. A copy has taken what all behind it have taken, and perhaps more.
// So one with a new successor sends it again all that is not confirmed. One that becomes the head forgets what it has
// been told and not taken, which nobody alive has, and goes on with what it has kept, in the order in which it has come.
// What the head before it had said may have died with it, so it says again all that its recipients have not
// acknowledged. They acknowledge what they get by its name, and drop what they know. The recorder acknowledges nothing: it gets the last
// records again.
//
// A head that was given up may go on, and know nothing of it for a while. What it has taken since is confirmed by nobody:
// an order names the head that has made it, and copies before that are told of nothing that follows.
//
// Copies are of households: of machines that play together, are lost together and speak with each other at once, each in
// its own process. What one of them is told by another follows from inputs of that household, which the other copies get,
// too; so nothing of it is held back, and nothing goes to another process. A machine speaks as the first copy, and knows
// the others of its household, and all other machines, as theirs.
//
// Invariants: an input is taken once by each copy, and as the same number by all that take it. What leaves the head
// follows from inputs that all living copies have taken. A recipient gets what the machine says once, in its order.
#pragma once

#include "messages/bad_sender.hpp"
#include "runtime/system/hearing.hpp"
#include "runtime/system/inbox.hpp"
#include "runtime/system/machine.hpp"
#include "runtime/system/spoken.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class Copied final : public Machine {
 public:
  /// The machine that is number `at` in its household, whose copy `index` this is; `others`: of other households. It does
  /// not end the run.
  Copied(Copies copies,
         std::size_t index,
         std::size_t at,
         std::unique_ptr<Machine> machine,
         const std::vector<Copies>& others = {});

  void on(Message message, double now, Effects& effects) override;
  std::string waits_for() const override;
  Remains remains() const override;
  void archive(Archive& a) override;

  RoleTag speaks_as() const override { return machine_->speaks_as(); }

  Machine& core() override { return machine_->core(); }

 private:
  /// An input that was taken and is not confirmed.
  struct Taken {
    CopyWord order;
    std::optional<Message> input;  // that the next copy may lack

    void archive(Archive& a);
  };

  /// What an order names; empty where nobody would miss it.
  struct Found {
    std::optional<Message> message{};
  };

  static std::optional<std::size_t> place_in(const std::vector<ActorId>& seat, ActorId id);
  bool is_other(ActorId id) const;
  void hear(Message message, Effects& fx);
  void believe(const CopyWord& word, ActorId from) const;
  void heed(const CopyWord& word, ActorId from, double now, Effects& fx);
  void take_up(Message message);
  void take(std::optional<Message> message, const CopyWord& order, Effects& fx);
  void hand_over(Message message, double now, Effects& fx);
  void note(Effects& made, Effects& fx);
  void note(Effects::Send one, Effects& fx);
  void lead(double now, Effects& fx);
  void follow(Effects& fx);
  std::optional<Found> find(const CopyWord& order, Effects& fx);
  void tell_next(const CopyWord& order, Effects& fx);
  void confirm(std::uint64_t number);
  void confirm_where_last(Effects& fx);
  void tell_confirmed(Effects& fx);
  void resend(std::uint64_t number, ActorId to, Effects& fx);
  void close_up(const CopyWord& left, double now, Effects& fx);
  void become_head(double now, Effects& fx);

  std::optional<std::size_t> before() const;
  std::optional<std::size_t> next() const;

  bool leads() const { return !before(); }

  /// The household of this copy, and as all speak of it.
  const std::vector<ActorId>& own() const { return copies_.seats[index_]; }

  const std::vector<ActorId>& firsts() const { return copies_.seats.front(); }

  static void tell_copy(ActorId to, CopyWord word, Effects& fx) {
    fx.pass_on(to, std::move(word), false);
  }

  /// This machine of copy `index`.
  ActorId of_copy(std::size_t index) const { return copies_.seats[index][at_]; }

  Copies copies_;
  std::size_t index_;
  std::size_t at_;
  std::unique_ptr<Machine> machine_;
  std::vector<bool> alive_;   // by copy
  std::uint64_t change_ = 0;  // the last of them
  Inbox inbox_;
  std::deque<CopyWord> told_;           // to be taken, in this order
  std::uint64_t last_told_ = 0;         // the last number that was told
  std::uint64_t taken_ = 0;             // inputs so far
  std::deque<Taken> unconfirmed_;       // the last of them
  std::uint32_t head_ = 0;              // that has ordered the last of them
  double now_ = 0;                      // when the last input was taken
  std::optional<double> alarm_;         // that the machine has asked for
  std::set<ActorId> dead_;              // senders from which nothing more comes
  std::set<ActorId> deaf_;              // to whom nothing more is said
  std::optional<std::uint64_t> asked_;  // that is missing, as long as it has not come
  std::optional<std::pair<ActorId, CopyWord>> announced_;  // who sends what next
  std::optional<Taken> resent_;
  Hearing hearing_;
  Spoken spoken_;
  bool struck_off_ = false;         // the others go on without this one
  std::optional<BadSender> bad_{};  // of the turn that is under way
};

}  // namespace troupe
