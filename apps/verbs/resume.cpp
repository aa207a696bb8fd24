#include "apps/verbs/resume.hpp"

#include "apps/cli/machine.hpp"
#include "apps/cli/text.hpp"
#include "apps/cli/version.hpp"
#include "kernels/wording.hpp"

#include <ostream>

namespace troupe {
namespace {

/// `named` in full, without a "/" at its end.
std::filesystem::path in_full(const std::string& named) {
  const auto path = std::filesystem::absolute(named).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

/// What can be done with a run that has no checkpoint.
std::string instead(const std::filesystem::path& run, const std::string& named, const char* verb) {
  std::error_code code;
  if (!std::filesystem::exists(run / "experiment.textproto", code)) {
    return std::filesystem::exists(run, code) ? ", and it is no folder of a run" : "";
  }
  const bool trained = std::filesystem::exists(run / "weights.safetensors", code);
  return fill_in("; {}: troupe {} {}{}",
                 trained
                     ? "what it has trained can be trained on"
                     : "the first would have come after record.checkpoint.seconds, so begin anew",
                 verb,
                 named,
                 trained ? " --set start_from=" + named : "");
}

}  // namespace

Result<FoundCheckpoint> checkpoint_to_resume(const std::string& named, bool virtual_clock) {
  auto found = find_checkpoint(in_full(named));
  if (!found && checkpoints_of(in_full(named)).empty()) {
    return Error{
        ErrorKind::data,
        found.error().message + instead(in_full(named), named, virtual_clock ? "sim" : "run")};
  }
  if (found && found->checkpoint.version != version()) {
    return Error{ErrorKind::data,
                 fill_in("{} was written by troupe {}; this is {}, which may keep other things. "
                         "Its weights can start a run: --set start_from={}",
                         found->path.string(),
                         found->checkpoint.version,
                         version(),
                         found->path.string())};
  }
  if (found && (found->checkpoint.clock == "virtual") != virtual_clock) {
    return usage_error(
        "--resume: {} is of a run on the {} clock: troupe {} --resume goes on with it",
        found->path.string(),
        found->checkpoint.clock,
        virtual_clock ? "run" : "sim");
  }
  return found;
}

std::filesystem::path run_folder(const std::filesystem::path& checkpoint) {
  return checkpoint.parent_path().parent_path();
}

void tell_resumed(Console& console, const FoundCheckpoint& found) {
  for (const std::string& why : found.passed_over) {
    console.err << "troupe: passed over: " << why << '\n';
  }
  console.err << "going on from " << found.path.string() << ", after "
              << grouped(found.checkpoint.step)
              << (found.checkpoint.step == 1 ? " update" : " updates") << '\n'
              << std::flush;
  if (const std::string note = other_instructions(found.checkpoint.instructions); !note.empty()) {
    console.err << "troupe: " << note << '\n' << std::flush;
  }
}

}  // namespace troupe
