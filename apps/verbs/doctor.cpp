// troupe doctor: what this machine and this build have, and what of it would be used.
#include "apps/cli/machine.hpp"
#include "apps/cli/text.hpp"
#include "apps/cli/version.hpp"
#include "apps/verbs/verb.hpp"
#include "kernels/device.hpp"
#include "kernels/group_mean.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/sequences.hpp"
#include "kernels/tiles.hpp"
#include "kernels/wording.hpp"
#include "runtime/cluster/run_keys.hpp"
#include "runtime/cluster/ucx_plane.hpp"

#include <caf/config.hpp>
#include <google/protobuf/stubs/common.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <sstream>
#include <thread>

namespace troupe {
namespace {

std::string cpu_features() {
  std::istringstream flags(value_of("/proc/cpuinfo", "flags"));
  std::vector<std::string> all;
  for (std::string flag; flags >> flag;) {
    all.push_back(flag);
  }
  std::string text;
  for (const auto& [flag, name] : {std::pair{"avx2", "avx2"},
                                   {"fma", "fma"},
                                   {"avx512f", "avx512"},
                                   {"avx512_bf16", "bf16"},
                                   {"amx_bf16", "amx"}}) {
    const bool has = std::find(all.begin(), all.end(), flag) != all.end();
    text += concat(text.empty() ? "" : ", ", has ? "" : "no ", name);
  }
  return text;
}

std::string instructions() {
  const InstructionSet set = instruction_set();
  return to_string(set) + (set == InstructionSet::v4
                               ? "; with TROUPE_ISA=v3 the bits of machines without AVX-512"
                               : "");
}

std::string caches_text() {
  constexpr std::int64_t kKiB = 1024;
  return fill_in("L1 {} KiB, L2 {} KiB, L3 {} KiB a core",
                 caches().first / kKiB,
                 caches().second / kKiB,
                 caches().third / kKiB);
}

std::string tiles_text() {
  const Tiles& t = tiles();
  return fill_in(
      "products {} x {} by {}; filters {} KiB for {} pixels; {} sums, updates of {}, rows of {} "
      "numbers",
      t.product_rows,
      kProductDepth,
      t.product_columns,
      t.panel_bytes / 1024,
      t.pixels,
      t.sum_columns,
      t.update_elements,
      t.row_elements);
}

std::string memory() {
  const auto bytes = [](const char* key) {
    std::int64_t kib = 0;
    std::istringstream(value_of("/proc/meminfo", key)) >> kib;
    return static_cast<double>(kib) / (1024 * 1024);
  };
  return fill_in("{} GiB, {} GiB free",
                 std::round(10 * bytes("MemTotal")) / 10,
                 std::round(10 * bytes("MemAvailable")) / 10);
}

std::string protobuf_version() {
  return google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION);
}

std::string caf_version() {
  return concat(CAF_VERSION / 10000, '.', CAF_VERSION / 100 % 100, '.', CAF_VERSION % 100);
}

std::string gpus() {
  if (std::string models = gpu_models(); !models.empty()) {
    return models;
  }
  const auto available = check_available({DeviceKind::cuda, 0});
  return "none: " + (available ? "no device" : available.error().message);
}

/// Each device and what its products may round to.
std::string precisions_text() {
  std::string text;
  for (const DeviceInfo& info : devices()) {
    text += concat(text.empty() ? "" : "; ", to_string(info.device), ' ');
    text += joined(precisions(info.device), ", ", [](Precision one) { return to_string(one); });
  }
  return text;
}

int doctor(Console& console) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const bool gpu = static_cast<bool>(check_available({DeviceKind::cuda, 0}));
  const std::string model = cpu_model();
  console.out << table(
      {{"troupe",
        fill_in(
            "{} of commit {}{}", version(), commit(), built_with_cuda() ? ", CUDA" : ", no CUDA")},
       {"cpu", model.empty() ? "unknown" : model},
       {"features", cpu_features()},
       {"kernels", instructions()},
       {"cores", concat(cores, " usable")},
       {"caches", caches_text()},
       {"tiles", tiles_text()},
       {"memory", memory()},
       {"gpu", gpus()},
       {"precision", precisions_text()},
       {"oneDNN", onednn_version()},
       {"cuDNN", cudnn_version().empty() ? "none: convolution runs on cpu only" : cudnn_version()},
       {"NCCL", nccl_version().empty() ? "none: no sums between GPUs by it" : nccl_version()},
       {"CAF", caf_version()},
       {"TLS", tls_words()},
       {"UCX", ucx_words()},
       {"protobuf", protobuf_version()},
       {"will use",
        concat("one thread a stage on cpu, so up to ",
               cores,
               cores == 1 ? " stage at a time" : " stages at a time",
               gpu ? "; a GPU where placement.devices says cuda:N" : "")}});
  return 0;
}

}  // namespace

Command declare_doctor() {
  return {.options = {}, .action = doctor};
}

}  // namespace troupe
