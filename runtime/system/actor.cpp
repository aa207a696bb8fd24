#include "runtime/system/actor.hpp"

#include "runtime/system/mailboxes.hpp"
#include "runtime/system/performer.hpp"

#include <caf/send.hpp>

#include <memory>
#include <utility>

namespace troupe {
namespace {

/// The way to a machine here or, where there is no actor, of another process.
class MachinePort final : public Port {
 public:
  MachinePort(Theatre& theatre, ActorId id)
      : theatre_(theatre), id_(id), role_(theatre.cast.members[id].machine->role()) {}

  void send(Message message, std::chrono::nanoseconds delay) override {
    TROUPE_CHECK(understands(role_, message),
                 theatre_.cast.members[id_].name,
                 " does not understand ",
                 message_name(message));
    const Performing& actor = theatre_.actors[id_];
    if (!theatre_.is_here(id_)) {
      const double seconds = std::chrono::duration<double>(delay).count();
      theatre_.options.others->send(
          id_, std::move(message), seconds > 0 ? theatre_.now() + seconds : 0);
      return;
    }
    if (theatre_.options.mailboxes) {
      theatre_.options.mailboxes->sent(id_);
    }
    if (delay.count() > 0) {
      caf::delayed_anon_send(actor, delay, std::move(message));
    } else {
      caf::anon_send(actor, std::move(message));
    }
  }

 private:
  Theatre& theatre_;
  ActorId id_;
  RoleTag role_;
};

class MachineActor final : public Pinned<Performing> {
 public:
  MachineActor(caf::actor_config& config, Thread& thread, Theatre* theatre, ActorId id)
      : Pinned<Performing>(config, thread), theatre_(*theatre), id_(id), performer_(*theatre, id) {
    theatre_.performers.push_back(&performer_);
    this->set_exception_handler([](std::exception_ptr& e) { return reason_of(e); });
    this->set_down_handler([this](const caf::down_msg& down) { on(down); });
  }

  const char* name() const override { return performer_.member().name.c_str(); }

 protected:
  Performing::behavior_type make_behavior() override {
    return {[this](Perform) { performer_.perform(); },
            [this](Watch) { watch(); },
            [this](Explain) { return standstill_of(*performer_.member().machine); },
            [this](Freeze) { return performer_.freeze(); },
            [this](Thaw) { performer_.thaw(); },
            [this](Message& message) {
              if (theatre_.options.mailboxes) {
                theatre_.options.mailboxes->taken(id_);
              }
              performer_.deliver(std::move(message));
            }};
  }

 private:
  void watch() {
    for (const Performing& other : theatre_.actors) {
      if (other && other.address() != this->address()) {
        this->monitor(other);
      }
    }
  }

  /// Another has gone: the Director, who watches, is told.
  void on(const caf::down_msg& down) {
    if (down.reason == caf::exit_reason::user_shutdown) {
      return;  // the run is over
    }
    for (std::size_t id = 0; id < theatre_.actors.size(); ++id) {
      if (theatre_.actors[id] && theatre_.actors[id].address() == down.source) {
        const auto who = static_cast<ActorId>(id);
        performer_.deliver(sent_by(who,
                                   Down{.actor = theatre_.cast.members[id].name,
                                        .cause = words_of(down.reason),
                                        .id = who}));
      }
    }
  }

  Theatre& theatre_;
  ActorId id_;
  Performer performer_;
};

}  // namespace

caf::error reason_of(const std::exception_ptr& exception) {
  std::string words = "an exception of an unknown kind";
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    words = error.what();
  } catch (...) {
  }
  return caf::make_error(caf::sec::runtime_error, std::move(words));
}

std::string words_of(const caf::error& reason) {
  return reason.context().match_elements<std::string>() ? reason.context().get_as<std::string>(0)
                                                        : caf::to_string(reason);
}

void hire_machine(Theatre& theatre, ActorId id) {
  Cast::Member& member = theatre.cast.members[id];
  theatre.roles.push_back(member.machine->speaks_as());
  theatre.ports.push_back(std::make_unique<MachinePort>(theatre, id));
  if (theatre.is_here(id)) {
    theatre.actors.push_back(hire<MachineActor>(theatre.workplace_of(id).thread, &theatre, id));
    if (Mailboxes* const mailboxes = theatre.options.mailboxes) {
      theatre.actors.back()->attach_functor(
          [mailboxes, id](const caf::error&) { mailboxes->ended(id); });
    }
    return;
  }
  theatre.actors.emplace_back();
  theatre.performers.push_back(nullptr);
  member.machine.reset();  // what it has of the model is there
}

}  // namespace troupe
