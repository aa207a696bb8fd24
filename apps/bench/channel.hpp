// What tensors between two processes cost beside bytes over a bare connection.
#pragma once

#include "apps/bench/measure.hpp"

namespace troupe {

/// A row a size: MB/s of tensors over a channel (runtime/cluster/channel.hpp), and of as many bytes over a
/// pair of the machine's own sockets, in turn; then the same between hosts, over TCP of the loopback device and
/// encrypted, beside bare TCP. Both ends are in this process, with memory and threads of their own.
Rows channels(double seconds);

}  // namespace troupe
