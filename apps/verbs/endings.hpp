// What `troupe run` and `troupe sim` say when a run has come to its end.
#pragma once

#include "apps/run/phases.hpp"
#include "apps/run/run.hpp"

#include <optional>
#include <string>

namespace troupe {

struct Console;

/// On stderr; nothing of an end that was meant.
void print_cause(Console& console,
                 int exit_code,
                 const std::string& cause,
                 const proto::Experiment& experiment,
                 const Summary& summary);

/// `directory`: of the run's files; "": none. `fit`: fit_text().
void print_summary(Console& console,
                   const RunResult& result,
                   const std::string& directory,
                   const std::string& fit = "");

/// With four decimals, or three digits where it is smaller than 0.001.
std::string loss_text(double loss);

/// R2 of predicted numbers, by a loss on the test data that the data set draws or names; "" where nothing else is predicted.
std::string fit_text(const Blueprint& blueprint, std::optional<double> test_loss);

/// "hint: ..." where the run is no better on the test data than one answer for all would be; else "".
std::string constant_hint(const Blueprint& blueprint, const Summary& summary);

/// A line a phase.
void print_phases(Console& console, const PhasesResult& result, const std::string& directory);

}  // namespace troupe
