// UCX (openucx.org), which moves tensors between processes by what a host has: RDMA, shared memory, TCP. It is the other carrier
// behind TensorPlane, and carries elements alone: headers, their order, and who is alive stay with the channel.
//
// It is loaded when it is first asked for, as it brings threads and patches of malloc's that others do without. A program that
// was built without it has ucx_absent.cpp in place of all this.
#pragma once

#include "kernels/result.hpp"
#include "runtime/cluster/tensor_plane.hpp"

#include <memory>
#include <string>

namespace troupe {

/// "1.13.1"; "" where there is none.
std::string ucx_version();

/// Error (usage) where this program or this host has no UCX, where that is not of `version` (empty: any), or can carry nothing.
Result<void> check_ucx(const std::string& version = "");

/// For people: version and transports, or why there is none.
std::string ucx_words();

/// One thread for all peers. Throws std::runtime_error where check_ucx() has an error.
std::unique_ptr<TensorPlane> make_ucx_plane(TensorPlane::Events events);

}  // namespace troupe
