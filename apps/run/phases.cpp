#include "apps/run/phases.hpp"

#include "apps/plan/room.hpp"
#include "apps/topologies/checks.hpp"
#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/data/stand_in.hpp"
#include "runtime/record/output_file.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNameMax = 64;  // characters

/// "phases[1].set"
std::string where(std::size_t phase, std::string_view key) {
  return concat("phases[", phase, "]", key.empty() ? "" : ".", key);
}

Result<void> check_name(const std::string& name, std::size_t phase) {
  const bool legal =
      !name.empty() && name.size() <= kNameMax && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.';
      });
  if (!legal) {
    return usage_error(
        "{}: a folder is named after it, so it is 1 to {} letters, digits, '-', '_' and '.'",
        where(phase, "name"),
        kNameMax);
  }
  return {};
}

/// What the path of `assignment` begins with: "data" of "data.batch_size=8".
std::string_view first_key(std::string_view assignment) {
  assignment.remove_prefix(std::min(assignment.size(), assignment.find_first_not_of(" \t\r\n")));
  return assignment.substr(0, assignment.find_first_of(".= \t\r\n"));
}

/// What is said of a key that there is not, without the suggestion of one that a phase may not set.
std::string without_suggestion(std::string message, const std::string& key) {
  for (const std::string& words :
       {concat(", did you mean \"", key, "\"?"), concat(" ", key, ",")}) {
    if (const std::size_t at = message.find(words); at != message.npos) {
      message.erase(at, words.size());
    }
  }
  const std::string last = concat(", ", key);  // of the legal ones
  if (const std::size_t at = message.find(last + ")"); at != message.npos) {
    message.erase(at, last.size());
  }
  return message;
}

/// `e`: the experiment without its phases; `of`: what it is changed by.
Result<proto::Experiment> experiment_of(proto::Experiment e,
                                        const proto::Phase& of,
                                        std::size_t phase) {
  if (phase > 0) {
    e.clear_start_from();
    e.clear_start_from_skip();
  }
  for (const std::string& assignment : of.set()) {
    const std::string_view key = first_key(assignment);
    if (key == "phases") {
      return Error{ErrorKind::usage, where(phase, "set") + ": a phase has no phases of its own"};
    }
    if ((key == "start_from" || key == "start_from_skip") && phase > 0) {
      return Error{ErrorKind::usage,
                   fill_in("{}: {} is for the first phase; a later one starts from the weights of "
                           "the one before",
                           where(phase, "set"),
                           key)};
    }
    if (auto set = set_value(e, assignment); !set) {
      std::string message = without_suggestion(set.error().message, "phases");
      if (phase > 0) {
        message = without_suggestion(without_suggestion(std::move(message), "start_from_skip"),
                                     "start_from");
      }
      return Error{set.error().kind, concat(where(phase, "set"), ": ", message)};
    }
  }
  if (auto resolved = resolve(e); !resolved) {
    return Error{resolved.error().kind,
                 concat(where(phase, "set"), ": ", resolved.error().message)};
  }
  return e;
}

std::string folder_of(const std::string& name, std::size_t phase) {
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%02zu-", phase + 1);
  return number.data() + name;
}

/// Data is the same where everything that it is opened with is.
std::string data_key(const proto::Experiment& e) {
  proto::Data data = e.data();
  data.clear_batch_size();
  data.clear_growth();
  return data.SerializeAsString() + std::to_string(e.seed());
}

/// The first parameter or buffer of `now` that weights of `before` do not fit, as a sentence; "" where all do.
std::string misfit(const Network& before, const Network& now) {
  const auto had = weight_specs(before);
  const auto wanted = weight_specs(now);
  for (std::size_t i = 0; i < std::max(had.size(), wanted.size()); ++i) {
    if (i >= wanted.size() || i >= had.size()) {
      return i >= wanted.size() ? concat("it has no ", had[i].name)
                                : concat(wanted[i].name, " is not in the phase before");
    }
    if (had[i].name != wanted[i].name || had[i].shape != wanted[i].shape) {
      return fill_in("{} is {}, and there {} is {}",
                     wanted[i].name,
                     wanted[i].shape,
                     had[i].name,
                     had[i].shape);
    }
  }
  return "";
}

/// Everything that shows before the phase's data is opened.
Result<void> check_alone(const proto::Experiment& e, std::optional<bool> virtual_clock) {
  TROUPE_TRY(check_experiment(e));
  return virtual_clock ? check_clock(e, *virtual_clock) : Result<void>();
}

/// An error of phase `i`, or of an experiment that has no phases.
Error of_phase(bool one, std::size_t i, const Error& error) {
  return one ? error : Error{error.kind, concat(where(i, ""), ": ", error.message)};
}

/// A cut that was measured when its phase was made is part of the phase from then on, so that a
/// repeat is exact.
proto::Experiment with_measured_cuts(proto::Experiment whole, const std::vector<Phase>& phases) {
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const proto::Pipeline& pipeline = phases[i].blueprint.experiment->pipeline();
    const auto keep = [&](const std::string& key, const auto& numbers) {
      const std::string assignment = key + "=[" + joined(numbers, ",") + "]";
      proto::Phase& phase = *whole.mutable_phases(static_cast<int>(i));
      if (std::find(phase.set().begin(), phase.set().end(), assignment) == phase.set().end()) {
        phase.add_set(assignment);  // a repeat has it already
      }
    };
    if (pipeline.partition() == proto::Pipeline::flops || pipeline.cut().empty()) {
      continue;
    }
    keep("pipeline.cut", pipeline.cut());
    if (pipeline.partition() == proto::Pipeline::mixed) {
      keep("pipeline.stage_of", pipeline.stage_of());
    }
    if (!pipeline.copies().empty()) {
      keep("pipeline.copies", pipeline.copies());
    }
  }
  return whole;
}

/// The folder of the whole, with what is known before the first phase.
Result<void> open_folder(const fs::path& directory, bool is_made, const proto::Experiment& whole) {
  TROUPE_TRY(is_made ? Result<void>() : make_run_directory(directory));
  return write_file(directory / "experiment.textproto", print_experiment(whole));
}

/// What is known after the last: its summary with a list of all, and a link to its weights.
Result<void> close_folder(const fs::path& directory,
                          const proto::Experiment& whole,
                          const PhasesResult& all) {
  const fs::path weights = fs::path(all.phases.back().folder) / kWeightsFile;
  std::error_code code;
  if (fs::exists(directory / weights, code)) {
    fs::create_symlink(weights, directory / kWeightsFile, code);
    if (code) {
      return lost_error(
          "{} could not be made: {}", (directory / kWeightsFile).string(), code.message());
    }
  }
  Summary summary = all.phases.back().summary;
  summary.outcome = outcome_text(all.exit_code, all.cause);
  summary.cause = all.cause;
  return write_file(directory / "summary.json", to_json(summary, whole, all.phases));
}

}  // namespace

Result<std::vector<proto::Experiment>> phases_of(const proto::Experiment& resolved) {
  std::vector<proto::Experiment> all;
  proto::Experiment common = resolved;
  common.clear_phases();  // each phase copies the rest, not the others
  for (std::size_t i = 0; i < static_cast<std::size_t>(resolved.phases_size()); ++i) {
    const proto::Phase& phase = resolved.phases(static_cast<int>(i));
    TROUPE_TRY(check_name(phase.name(), i));
    auto e = experiment_of(common, phase, i);
    TROUPE_TRY(e);
    all.push_back(*std::move(e));
  }
  if (all.empty()) {
    all.push_back(resolved);
  }
  return all;
}

Result<std::vector<Phase>> make_phases(const proto::Experiment& resolved,
                                       std::optional<bool> virtual_clock,
                                       bool stand_ins) {
  const auto experiments = phases_of(resolved);
  TROUPE_TRY(experiments);
  const bool one = resolved.phases().empty();
  for (std::size_t i = 0; i < experiments->size(); ++i) {
    if (auto sound = check_alone((*experiments)[i], virtual_clock); !sound) {
      return of_phase(one, i, sound.error());
    }
  }
  std::vector<Phase> phases;
  std::map<std::string, decltype(Blueprint::data)> opened;  // by what it is opened with
  for (std::size_t i = 0; i < experiments->size(); ++i) {
    auto blueprint = make_blueprint((*experiments)[i]);
    std::string missing;
    if (!blueprint && blueprint.error().kind == ErrorKind::data && stand_ins) {
      auto data = stand_in_for((*experiments)[i].data());
      if (!data) {
        return of_phase(one, i, data.error());
      }
      if (*data) {
        missing = blueprint.error().message;
        blueprint = make_blueprint((*experiments)[i], *std::move(data));
      }
    }
    if (!blueprint) {
      return of_phase(one, i, blueprint.error());
    }
    blueprint->data = opened.emplace(data_key((*experiments)[i]), blueprint->data).first->second;
    const std::string name = one ? "" : resolved.phases(static_cast<int>(i)).name();
    phases.push_back(
        {name, one ? "" : folder_of(name, i), *std::move(blueprint), std::move(missing)});
    if (i > 0) {
      const std::string wrong =
          misfit(phases[i - 1].blueprint.network, phases[i].blueprint.network);
      if (!wrong.empty()) {
        return usage_error("{}: the network cannot take the weights of the phase before: {}",
                           where(i, "set"),
                           wrong);
      }
    }
  }
  return phases;
}

Result<void> check_clock(const std::vector<Phase>& phases, bool virtual_clock) {
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (auto sound = check_clock(phases[i].blueprint, virtual_clock); !sound) {
      return of_phase(phases[i].name.empty(), i, sound.error());
    }
  }
  return {};
}

Result<void> check_memory(const std::vector<Phase>& phases, int processes) {
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (auto fits = check_memory(phases[i].blueprint, processes); !fits) {
      return of_phase(phases[i].name.empty(), i, fits.error());
    }
  }
  return {};
}

Result<PhasesResult> run_phases(const proto::Experiment& whole,
                                std::vector<Phase> phases,
                                const RunOptions& options,
                                const PhaseEvents& events) {
  TROUPE_CHECK(
      whole.phases_size() > 0 && phases.size() == static_cast<std::size_t>(whole.phases_size()),
      fill_in("[run_phases] {} phases of an experiment of {}", phases.size(), whole.phases_size()));
  TROUPE_TRY(check_clock(phases, options.virtual_clock));
  const auto& directory = options.directory;
  const proto::Experiment exact = with_measured_cuts(whole, phases);
  if (directory) {
    TROUPE_TRY(open_folder(*directory, options.directory_is_made, exact));
  }
  PhasesResult all;
  std::vector<ParameterValues> weights;  // of the phase before
  bool kept = false;                     // in its folder, too
  for (std::size_t i = 0; i < phases.size(); ++i) {
    Blueprint& blueprint = phases[i].blueprint;
    RunOptions of_phase = options;
    if (directory) {
      of_phase.directory = *directory / phases[i].folder;
      of_phase.directory_is_made = false;
    }
    if (i > 0) {
      blueprint.start = std::move(weights);
      if (directory && kept) {
        // The same weights, so that the phase's folder can be run again by itself.
        blueprint.experiment->set_start_from((*directory / phases[i - 1].folder).string());
      }
    }
    if (events.begins) {
      events.begins(i);
    }
    auto result = run_experiment(blueprint, of_phase);
    if (!result) {
      if (i == 0) {
        std::error_code code;
        if (directory) {
          fs::remove_all(*directory, code);  // ours, and of no use to anybody
        }
        return result.error();
      }
      all.exit_code = static_cast<int>(result.error().kind);
      all.cause = concat(where(i, ""), ": ", result.error().message);
      break;
    }
    if (events.ended) {
      events.ended(i, *result);
    }
    all.exit_code = result->exit_code;
    all.cause = result->cause;
    all.phases.push_back(
        {phases[i].name, phases[i].folder, result->exit_code, std::move(result->summary)});
    if (result->exit_code != 0 || result->weights.empty()) {
      break;
    }
    if (i + 1 < phases.size()) {
      if (options.interrupts && options.interrupts() > 0) {
        all.exit_code = 130;
        all.cause = "interrupted";
        break;
      }
      weights = values_of(blueprint.chunks, result->weights, result->buffers);
      kept = blueprint.experiment->record().weights();
      blueprint.start.clear();
      blueprint.data.reset();  // gone, where no other phase has it
    }
  }
  if (directory) {
    if (auto closed = close_folder(*directory, exact, all); !closed) {
      all.cause = closed.error().message + (all.cause.empty() ? "" : "; " + all.cause);
      all.exit_code = static_cast<int>(closed.error().kind);
    }
  }
  return all;
}

}  // namespace troupe
