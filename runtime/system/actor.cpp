#include "runtime/system/actor.hpp"

#include "runtime/system/performer.hpp"

#include <caf/send.hpp>

#include <functional>
#include <utility>

namespace troupe {
namespace {

template <class Role>
class RolePort final : public Port {
 public:
  RolePort(std::string name, Handle<Role> actor)
      : name_(std::move(name)), actor_(std::move(actor)) {}

  void send(Message message, std::chrono::nanoseconds delay) override {
    const bool understood = open(message, [&, from = message.from](auto& m) {
      if (delay.count() > 0) {
        caf::delayed_anon_send(actor_, delay, std::move(m), from);
      } else {
        caf::anon_send(actor_, std::move(m), from);
      }
    });
    TROUPE_CHECK(understood, name_, " does not understand ", message_name(message));
  }

 private:
  /// Calls `then` with what is in the message, or, where the role is any, with the message. False
  /// where the role does not accept it.
  template <class Then>
  static bool open(Message& message, Then then) {
    if constexpr (Role::template accepts<Message>) {
      then(message);
      return true;
    } else {
      return std::visit(
          [&]<class M>(M& m) {
            if constexpr (Role::template accepts<M>) {
              then(m);
            }
            return Role::template accepts<M>;
          },
          message);
    }
  }

  std::string name_;
  Handle<Role> actor_;
};

/// The way to a machine of another process.
template <class Role>
class FarPort final : public Port {
 public:
  FarPort(std::string name, Theatre& theatre, ActorId id)
      : name_(std::move(name)), theatre_(theatre), id_(id) {}

  void send(Message message, std::chrono::nanoseconds delay) override {
    const bool understood = std::visit(
        []<class M>(const M&) {
          return Role::template accepts<M> || Role::template accepts<Message>;
        },
        static_cast<const Message::variant&>(message));
    TROUPE_CHECK(understood, name_, " does not understand ", message_name(message));
    const double seconds = std::chrono::duration<double>(delay).count();
    theatre_.options.others->send(
        id_, std::move(message), seconds > 0 ? theatre_.now() + seconds : 0);
  }

 private:
  std::string name_;
  Theatre& theatre_;
  ActorId id_;
};

template <class Role>
class MachineActor final : public Pinned<Handle<Role>> {
 public:
  MachineActor(caf::actor_config& config, Thread& thread, Theatre* theatre, ActorId id)
      : Pinned<Handle<Role>>(config, thread), theatre_(*theatre), performer_(*theatre, id) {
    theatre_.performers.push_back(&performer_);
    this->set_exception_handler([](std::exception_ptr& e) { return reason_of(e); });
    this->set_down_handler([this](const caf::down_msg& down) { on(down); });
  }

  const char* name() const override { return performer_.member().name.c_str(); }

 protected:
  typename Handle<Role>::behavior_type make_behavior() override { return behavior(Role{}); }

 private:
  template <class... Messages>
  typename Handle<Role>::behavior_type behavior(const Understands<Messages...>&) {
    return {[this](Perform) { performer_.perform(); },
            [this](Watch) { watch(); },
            [this](Explain) { return standstill_of(*performer_.member().machine); },
            [this](Freeze) { return performer_.freeze(); },
            [this](Thaw) { performer_.thaw(); },
            delivery<Messages>()...};
  }

  template <class M>
  auto delivery() {
    return [this](M& m, ActorId from) {
      performer_.deliver(sent_by(from, std::move(m)));
    };
  }

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
  theatre.roles.push_back(member.machine->role());
  std::visit(
      [&]<class Role>(Role) {
        if (!theatre.is_here(id)) {
          theatre.actors.emplace_back();
          theatre.performers.push_back(nullptr);
          theatre.ports.push_back(std::make_unique<FarPort<Role>>(member.name, theatre, id));
          return;
        }
        Handle<Role> actor =
            hire<MachineActor<Role>>(theatre.workplace_of(id).thread, &theatre, id);
        theatre.actors.push_back(actor);
        theatre.ports.push_back(std::make_unique<RolePort<Role>>(member.name, std::move(actor)));
      },
      theatre.roles.back());
  if (!theatre.is_here(id)) {
    member.machine.reset();  // what it has of the model is there
  }
}

}  // namespace troupe
