// troupe bench: the budgets of the project on this machine.
#include "apps/bench/bench.hpp"

#include "apps/run/processes.hpp"
#include "apps/verbs/verb.hpp"
#include "kernels/sequences.hpp"
#include "runtime/schemes/registry.hpp"

#include <memory>

namespace troupe {

Command declare_bench() {
  auto options = std::make_shared<BenchOptions>();
  auto transport = std::make_shared<std::string>(kStreams);
  return {
      .options = {{.names = "ROWS",
                   .value = &options->names,
                   .doc = "which rows; where none is named, all but scale (costs against a run's "
                          "size), gpu (training in bf16 on cuda:0), "
                          "peers (PyTorch's training steps beside ours) and gpu-peers (both): " +
                          joined(bench_names(), ", "),
                   .legal = bench_names()},
                  {.names = "--quick",
                   .value = &options->quick,
                   .doc = "less than a tenth of the time, each comparison once; noisy"},
                  {.names = "--python",
                   .value = &options->python,
                   .doc = "for peers and gpu-peers: a Python that has torch (default: " +
                          options->python + ")"},
                  {.names = "--transport",
                   .value = transport.get(),
                   .doc = "for channel: what carries tensors, streams or ucx (default: streams)",
                   .type = "NAME",
                   .legal = {kStreams, kUcx}}},
      .action = [options, transport](Console& console) {
        options->ucx = *transport == kUcx;
        return run_bench(*options, console.out, console.err);
      }};
}

}  // namespace troupe
