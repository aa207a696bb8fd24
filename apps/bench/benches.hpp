// What `troupe bench` measures, each in a file of its own. `seconds`: about, of each row.
#pragma once

#include "apps/bench/measure.hpp"
#include "kernels/result.hpp"
#include "runtime/cluster/tensor_plane.hpp"

#include <string>

namespace troupe {

/// Samples a second of an MLP as one stage actor, and of a bare loop over the same kernels, in turn.
Row actors_against_loop(double seconds);

/// Two stages on two cores: what the slowest stage's own work leaves of the time.
Row two_stages(double seconds);

/// What tensors between two processes cost beside bytes over a bare connection. A row a size: MB/s of tensors over a channel
/// (runtime/cluster/channel.hpp), and of as many bytes over a pair of the machine's own sockets, in turn; then the same
/// between hosts, over TCP of the loopback device and encrypted, beside bare TCP. Both ends are in this process, with memory
/// and threads of their own. With Transport::ucx what is between hosts is not encrypted. Error (usage): there is no UCX.
Result<Rows> channels(double seconds, Transport transport);

/// Bytes a second of each codec, encoding and decoding, and of a triad in turn.
Rows codecs_bandwidth(double seconds);

/// What the profile of a network promises of its cut in two, against what two stages then do: a row a network. In each
/// round, in turn: the layers are timed one by one on this thread, the cut with the fastest bottleneck and the throughput
/// that it should have follow (profiled_cut.hpp), and two asynchronous stages on two threads train with it by the wall
/// clock. So both cores should be free.
Rows profiled_cuts(double seconds);

/// Two modules on two cores: what it brings that they do not wait for each other.
Rows decoupled_stages(double seconds);

/// Sparse Hogwild on two threads against one, and against what it does without: locks.
Rows hogwild(double seconds);

/// How long a tensor's handle takes from one actor to another: streamed, and to and fro with a wake-up each.
Rows hops(double seconds);

/// Training steps here and in PyTorch, in turn: the same network, batch and one thread each; a row a network. `python`: the
/// interpreter, found as a shell would. Error (usage) where it cannot be started, has no torch, or goes wrong later.
Result<Rows> against_peers(const std::string& python, double seconds);

/// ResNet-50, GPT-2 124M and a Llama of that size on cuda:0 in bf16, beside PyTorch with autocast, eager and compiled.
/// Error (usage) as above, and where there is no such GPU.
Result<Rows> against_peers_on_gpu(const std::string& python, double seconds);

/// A pipeline of two stages in two processes, against the same in two threads of one. Starts its own program again, for the
/// other process. Error: that did not work.
Result<Rows> two_processes(double seconds);

/// What a message costs, what a run takes to begin and how much memory it has then, against its workers, stages, shards and layers;
/// and the exponents of their growth. A row for each of these.
Rows costs_by_size(double seconds);

/// How many messages a second the virtual clock delivers in a pipeline of 64 stages that compute nothing.
Row virtual_clock(double seconds);

}  // namespace troupe
