// Which kinds of parcels may come at what time of a run, and from whom.
#pragma once

#include "messages/wire.hpp"

#include <cstdint>

namespace troupe {

/// What a process knows of the run, by which it judges what another one says.
struct Moment {
  bool ended = false;           // it has said, or heard, that the run is over
  bool left = false;            // the other has said goodbye
  bool begins = false;          // from a checkpoint: nobody has been told to go on
  std::uint32_t halt = 0;       // the last that was asked for
  std::uint32_t question = 0;   // the last that was asked
  std::uint32_t processes = 0;  // of the run
};

/// Of the lead: WireError where a node cannot say this now.
void check_word_of_node(const Parcel& parcel, const Moment& now);

/// Of a node, `from_lead` whether the lead says it.
void check_word_to_node(const Parcel& parcel, const Moment& now, bool from_lead);

}  // namespace troupe
