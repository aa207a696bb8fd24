// Runs that follow each other, each from the weights of the one before: the experiment's `phases`.
//
//   experiment --phases_of--> one experiment a phase --make_phases--> checked --run_phases--> DIR/NN-name
//
// Weights and buffers are handed on in memory. Optimizers' moments are not: each phase's begin at
// zero, and steps, epochs, seconds and shuffles are counted from its own beginning.
#pragma once

#include "apps/run/run.hpp"
#include "messages/proto.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The experiments of the phases in order, each resolved and without phases of its own: `resolved`
/// with the phase's `set` applied over it. `resolved` alone where it has no phases. Error (usage) that
/// names phases[i].set or phases[i].name.
Result<std::vector<proto::Experiment>> phases_of(const proto::Experiment& resolved);

struct Phase {
  std::string name;    // "" where the experiment has no phases
  std::string folder;  // of its files in the run's: "02-large"; "" as above
  Blueprint blueprint;
  std::string missing{};  // what is said of its data, where a stand-in has taken its place
};

/// All phases, checked before the first begins, and as far as can be before any data is opened; phases
/// with the same data share it. `virtual_clock`: what they are to run on, where that is known. Error
/// (usage or data) with phases[i] in front; (usage) where a phase's network has other parameters than
/// that of the one before. `stand_ins`: data that is not here, but whose sizes are known, is no error.
Result<std::vector<Phase>> make_phases(const proto::Experiment& resolved,
                                       std::optional<bool> virtual_clock = {},
                                       bool stand_ins = false);

/// check_clock of each phase, with phases[i] in front where there are several.
Result<void> check_clock(const std::vector<Phase>& phases, bool virtual_clock);

/// check_memory of each phase, likewise.
Result<void> check_memory(const std::vector<Phase>& phases, int processes = 1);

struct PhasesResult {
  int exit_code = 0;  // of the last phase that has run
  std::string cause;  // one sentence where exit_code != 0
  std::vector<PhaseSummary> phases;
};

/// What is told while they run; either may be empty. `phase`: from 0.
struct PhaseEvents {
  std::function<void(std::size_t phase)> begins;
  std::function<void(std::size_t phase, const RunResult& result)> ended;
};

/// Runs them in order, `options.directory` being the folder of the whole: in it one of each phase,
/// `whole` as experiment.textproto, and at the end the last phase's summary.json and weights. What
/// does not end with code 0 and with weights is the last to run; so is one that was interrupted.
/// Error as run_experiment's, where the first could not begin, or check_clock's of any.
Result<PhasesResult> run_phases(const proto::Experiment& whole,
                                std::vector<Phase> phases,
                                const RunOptions& options,
                                const PhaseEvents& events = {});

}  // namespace troupe
