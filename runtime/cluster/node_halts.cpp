// How the part of a run that a node plays comes to stand still, and goes on from there.
#include "kernels/check.hpp"
#include "runtime/cluster/node.hpp"
#include "runtime/system/standing_still.hpp"

#include <utility>

namespace troupe {

void Node::take_state(Parcel parcel) {
  const std::uint32_t number = parcel.recipient;
  auto state = reader_.take(std::move(parcel));
  if (state && *state) {
    const std::lock_guard lock(errands_mutex_);
    state_ = **std::move(state);
    orders_.push_back({.kind = ParcelKind::state, .recipient = number});
    errand_.notify_one();
  }
}

/// Tells the lead what the machines here keep.
void Node::rest() {
  try {
    if (auto state = state_at_rest(*theatre_)) {
      for (Parcel& parcel : state_parcels(halt_, *std::move(state))) {
        post(kLead, std::move(parcel));
      }
    }
  } catch (const ArchiveError& error) {
    post(kLead, state_refused(halt_, error.what()));
  }
}

void Node::take_up_state() {
  Archived taken;
  {
    const std::lock_guard lock(errands_mutex_);
    taken = *std::exchange(state_, {});
  }
  Archive a(std::move(taken));
  RunState state;
  archive_part(a, theatre_->cast, state);
  a.expect_end();
  take_up(*theatre_, state);
  wake_up(*theatre_, state);
  post(kLead, {.kind = ParcelKind::rested, .recipient = halt_});
}

bool Node::hurried() const {
  return over_ || theatre_->ended;
}

void Node::deal(Cast& /*cast*/, RunState& /*state*/) {
  TROUPE_CHECK(false, "[Node] the lead has the checkpoint");
}

void Node::halt() {
  TROUPE_CHECK(false, "[Node] the lead says when machines come to rest");
}

Result<Others::Kept> Node::gather() {
  return Error{ErrorKind::lost, "the lead gathers what machines keep"};
}

void Node::go_on() {}

}  // namespace troupe
