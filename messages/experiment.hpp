// Experiments as text: loading, `--set`, defaults, checks of single values, the resolved printout
// and the help. Everything here is driven by experiment.proto's descriptors; nothing names a field
// but the special cases noted below.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Reads `text` as textproto, or as JSON where its first character other than white space is '{'.
/// In JSON a choice may be a plain string: "schedule": "gpipe". Refused are keys given twice,
/// numbers that are not finite, and more than 1 MiB. `origin` (a path or a preset's name) is put
/// into messages. Error (usage) names line, key and the nearest legal key.
Result<proto::Experiment> parse_experiment(std::string_view text, std::string_view origin);

/// Applies one "path=value". A path to a choice selects it with its defaults (`data=mnist`,
/// `pipeline.weights=stash`, `model.mlp.hidden=[64,64]`, `pipeline.schedule.interleaved.chunks=4`);
/// lists are written [a,b], an entry of a table `replicas.rule.custom.values.half_life=8`. Selecting
/// the choice that is already chosen keeps its fields.
/// `pipeline.weights=nesterov` also selects nadamw, with momentum 0.99 and rate 0.001 unless they are
/// given already, where no rule has been: the scheme is stash + NAdam. Another name
/// (other_names.hpp) is taken for what it stands for. Error (usage) with the path,
/// the value, the nearest legal name and the legal values; the experiment is as before.
Result<void> set_value(proto::Experiment& experiment, std::string_view assignment);

/// Fills in every default, so that printing shows all of it: a choice that is not made gets its
/// default (model mlp, data glyphs, schedule one_f_one_b, weights latest, constant rate and times),
/// lists get their default_list. Then checks every number against its bounds. Error (usage) with
/// path, value and bound.
Result<void> resolve(proto::Experiment& experiment);

/// The resolved experiment as textproto, with one comment line on top; parse_experiment reads it
/// back.
std::string print_experiment(const proto::Experiment& experiment);
/// The same as JSON with the proto's own field names; whole numbers from 2^53 on are strings, as
/// JSON's are doubles.
std::string print_experiment_json(const proto::Experiment& experiment);

/// Every key as --set takes it, with its default, type, bounds, legal values and doc; indented by
/// depth, at most 100 columns wide. `word`: those alone, with their whole paths and without indents,
/// that have it in their path, their doc or a value; "" where none has.
std::string experiment_help(std::string_view word = "");

/// The candidate nearest to `name` by edit distance (Damerau-Levenshtein), or "" where none is near
/// enough to mean it.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

/// The name of the chosen alternative of a choice message ("spectrain"), or "" where none is
/// chosen.
std::string choice_name(const google::protobuf::Message& choice);

}  // namespace troupe
