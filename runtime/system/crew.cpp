#include "runtime/system/crew.hpp"

#include "runtime/system/free_processor.hpp"
#include "runtime/system/thread.hpp"
#include "runtime/system/thread_limits.hpp"

#include <utility>

namespace troupe {
namespace {

thread_local Crew::Hand* this_hand = nullptr;

Thread* take_first(std::deque<Thread*>& places) {
  Thread* const first = places.front();
  places.pop_front();
  return first;
}

}  // namespace

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    for (const auto& hand : hands_) {
      hand->woken.notify_one();
    }
  }
  for (const auto& hand : hands_) {
    hand->thread.join();
  }
}

Crew::Hand& Crew::add_hand() {
  auto hand = std::make_unique<Hand>(*this);
  hands_.reserve(hands_.size() + 1);
  hand->thread = made_thread([this, &me = *hand] { work(me); });
  return *hands_.emplace_back(std::move(hand));
}

void Crew::due(Thread& place) {
  if (this_hand && &this_hand->crew == this) {
    this_hand->kept.push_back(&place);
  } else {
    give(place);
  }
}

void Crew::share() {
  for (std::deque<Thread*>& kept = this_hand->kept; !kept.empty();) {
    give(*take_first(kept));
  }
}

void Crew::give(Thread& place) {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) {
    due_.push_back(&place);
    return;
  }
  // Its own, if that is idle: it has the memory that kernels keep from call to call.
  Hand& own = place.hand();
  Hand& hand = own.at < idle_.size() && idle_[own.at] == &own ? own : *idle_.back();
  idle_.back()->at = hand.at;
  idle_[hand.at] = idle_.back();
  idle_.pop_back();
  hand.given = &place;
  if (hand.asleep) {
    hand.woken.notify_one();
  }
}

void Crew::work(Hand& me) {
  this_hand = &me;
  while (Thread* const place = me.kept.empty() ? wait(me) : take_first(me.kept)) {
    place->take_turns();
  }
}

/// What it does next; null at the end.
Thread* Crew::wait(Hand& me) {
  std::unique_lock lock(mutex_);
  if (!due_.empty()) {
    return take_first(due_);
  }
  me.at = idle_.size();
  idle_.push_back(&me);
  if (looks_out_) {
    lock.unlock();
    look_out([&me] { return me.given != nullptr; });
    lock.lock();
  }
  me.asleep = true;
  me.woken.wait(lock, [&] { return me.given != nullptr || over_; });
  me.asleep = false;
  return me.given.exchange(nullptr);
}

}  // namespace troupe
