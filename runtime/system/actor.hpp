// CAF actors that are pinned to a thread (thread.hpp), and those that play machines.
#pragma once

#include "runtime/system/theatre.hpp"

#include <caf/actor_system.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <exception>

namespace troupe {

/// An actor that takes its turns on one thread, whoever sends to it.
template <class OfHandle>
class Pinned : public OfHandle::base {
 public:
  Pinned(caf::actor_config& config, Thread& thread) : OfHandle::base(config), thread_(thread) {}

  void enqueue(caf::mailbox_element_ptr message, caf::execution_unit*) override {
    OfHandle::base::enqueue(std::move(message), &thread_);
  }

 private:
  Thread& thread_;
};

/// Makes a pinned actor, which begins with its first message.
template <class Actor, class... Args>
auto hire(Thread& thread, const Args&... args) {
  caf::actor_config config{&thread};
  return thread.system().spawn_class<Actor, caf::lazy_init>(config, thread, args...);
}

/// Why an actor ends that an exception has left, and the words of that reason.
caf::error reason_of(const std::exception_ptr& exception);
std::string words_of(const caf::error& reason);

/// Makes the actor of machine `id`: adds its handle and its port to the theatre's. A machine that plays
/// in another process is thrown away.
void hire_machine(Theatre& theatre, ActorId id);

}  // namespace troupe
