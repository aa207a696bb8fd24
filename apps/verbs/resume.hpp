// What --resume names: a checkpoint, and the folder of its run.
#pragma once

#include "apps/verbs/verb.hpp"
#include "runtime/checkpoint/store.hpp"

#include <filesystem>
#include <string>

namespace troupe {

/// The checkpoint that `named` is, or the newest whole one of the run in that folder. Error (usage) where it is
/// of the other clock, (data) where there is none, or another version has written it.
Result<FoundCheckpoint> checkpoint_to_resume(const std::string& named, bool virtual_clock);

/// The folder of the run whose checkpoint this is: DIR of DIR/checkpoints/step-N.
std::filesystem::path run_folder(const std::filesystem::path& checkpoint);

/// On stderr: from where the run goes on, and why not from a newer one.
void tell_resumed(Console& console, const FoundCheckpoint& found);

}  // namespace troupe
