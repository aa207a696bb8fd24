// troupe replay: a recorded run of the real clock once more, and whether it comes to the same.
#include "apps/run/replay.hpp"

#include "apps/cli/interrupts.hpp"
#include "apps/cli/text.hpp"
#include "apps/verbs/verb.hpp"
#include "kernels/wording.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace troupe {
namespace {

constexpr int kDiffers = 1;  // the exit code

struct ReplayArguments {
  std::string folder;
  std::string out;
  bool quiet = false;
};

void print(Console& console, const Replayed& replayed, double seconds, const std::string& out) {
  const Summary& s = replayed.summary;
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"replayed",
                  concat(grouped(static_cast<std::int64_t>(replayed.deliveries)),
                         " deliveries of ",
                         replayed.threads,
                         replayed.threads == 1 ? " thread in " : " threads in ",
                         duration(seconds))});
  if (replayed.differences.empty()) {
    rows.push_back({"equal", "weights, updates, staleness, test results, order of deliveries"});
  }
  if (!s.weights_sha256.empty()) {
    rows.push_back({"weights", "sha256 " + s.weights_sha256});
  }
  if (!out.empty()) {
    rows.push_back({"files", out});
  }
  console.out << table(rows) << std::flush;
}

Result<int> run(Console& console, const ReplayArguments& arguments) {
  std::error_code code;
  if (!arguments.out.empty() && std::filesystem::exists(arguments.out, code)) {
    return usage_error("--out: {} exists already; name a new folder", arguments.out);
  }
  ReplayOptions options{.out = {},
                        .progress = arguments.quiet ? nullptr : &console.err,
                        .terminal = console.terminal};
  if (!arguments.out.empty()) {
    options.out = arguments.out;
  }
  const Interrupts interrupts;
  options.interrupts = Interrupts::count;
  const auto start = std::chrono::steady_clock::now();
  const auto replayed = replay(arguments.folder, options);
  TROUPE_TRY(replayed);
  if (replayed->interrupted) {
    console.err << "troupe: interrupted" << '\n' << std::flush;
    return 130;
  }
  for (const std::string& one : replayed->differences) {
    console.err << "troupe: " << one << '\n';
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  print(console, *replayed, wall.count(), arguments.out);
  return replayed->differences.empty() ? 0 : kDiffers;
}

}  // namespace

Command declare_replay() {
  auto arguments = std::make_shared<ReplayArguments>();
  return {.options =
              {{.names = "DIR",
                .value = &arguments->folder,
                .doc = "the folder of a run on the real clock: what --out of troupe run named",
                .required = true},
               {.names = "--out",
                .value = &arguments->out,
                .doc = "folder for the replay's own files; made here, must not exist "
                       "(default: none are kept)",
                .type = "DIR",
                .refuse_empty = kEmptyFolder},
               {.names = "--quiet,-q", .value = &arguments->quiet, .doc = "no progress on stderr"}},
          .action = [arguments](Console& console) {
            return run(console, *arguments);
          }};
}

}  // namespace troupe
