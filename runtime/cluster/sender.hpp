// In whose name a message of another process may speak.
#pragma once

#include "messages/message.hpp"

#include <cstdint>

namespace troupe {

/// WireError where the message names a replica as its sender, and the machine that has sent it is not that
/// replica's. `replica`: whose the machine is; -1: nobody's alone. Receivers count and order by that name.
void check_sender(const Message& message, std::int32_t replica);

}  // namespace troupe
