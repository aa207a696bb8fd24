#include "messages/experiment.hpp"

#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "messages/experiment/source.hpp"
#include "messages/experiment/values.hpp"
#include "messages/other_names.hpp"

#include <google/protobuf/text_format.h>

// In messages/experiment/: schema (names and paths), values, textproto and json (reading), help.
namespace troupe {

using namespace schema;

// -- loading -------------------------------------------------------------------------------------

Result<proto::Experiment> parse_experiment(std::string_view text, std::string_view origin) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  std::string ended(text);
  for (std::size_t i = 0; i < ended.size(); ++i) {
    // A line that \r alone ends is one: a comment on it would go on to the end of the file, and all keys with it.
    if (ended[i] == '\r' && (i + 1 == ended.size() || ended[i + 1] != '\n')) {
      ended[i] = '\n';
    }
  }
  text = ended;
  const Source source{text, origin.empty() ? "experiment" : std::string(origin)};
  if (text.size() > kTextBytesMax) {
    return usage(source.origin + ": is longer than an experiment may be, 1 MiB");
  }
  if (const std::size_t valid = valid_utf8(text); valid < text.size()) {
    return usage(source.at(valid) + ": " + quoted(text.substr(valid, 1)) + " is not valid UTF-8");
  }
  const bool json = trimmed(text).starts_with('{');
  auto experiment = json ? parse_json(source) : parse_textproto(source);
  if (!experiment) {
    return experiment;
  }
  TROUPE_TRY(check_values(*experiment, Bounds::ignored, source.origin + ": "));
  return experiment;
}

// -- --set ---------------------------------------------------------------------------------------

namespace {

/// `path=value` where the group at `path` is no choice: what to write instead.
Error not_a_value(const std::string& path, const pb::FieldDescriptor& group) {
  const Names keys = keys_of(*group.message_type());
  const std::string keys_hint = "set one of its keys" + legal(keys);
  if (!group.containing_oneof()) {
    return usage(path + ": is a group, " + keys_hint);
  }
  return usage(path + ": is an alternative, choose it by " + path.substr(0, path.rfind('.')) + '=' +
               group.name() + (keys.empty() ? "" : ", or " + keys_hint));
}

/// `clock.forward=0.1`: what is meant may be a key beside the alternatives.
std::string plain_keys_hint(const std::string& path, const pb::Descriptor& choice) {
  Names keys;
  for (int i = 0; i < choice.field_count(); ++i) {
    if (!choice.field(i)->containing_oneof()) {
      keys.push_back(path + '.' + choice.field(i)->name());
    }
  }
  return keys.empty() ? "" : "; beside them there is " + joined(keys, ", ");
}

/// `path=value` where `path` ends at a group.
Result<void> choose_by_name(pb::Message& group,
                            const pb::FieldDescriptor& field,
                            std::string_view value,
                            const std::string& path) {
  if (!is_choice(field)) {
    return not_a_value(path, field);
  }
  const auto name = without_quotes(value, path);
  TROUPE_TRY(name);
  if (auto chosen = choose(group, *name, path); !chosen) {
    return usage(chosen.error().message + plain_keys_hint(path, *field.message_type()));
  }
  return {};
}

/// `path.KEY=value`, where the list of groups at `path` is a table.
Result<void> set_entry(pb::Message& group,
                       const pb::FieldDescriptor& table,
                       const std::string& key,
                       std::string_view value,
                       const std::string& where) {
  const auto* name = table.message_type()->FindFieldByName("key");
  const pb::Reflection& reflection = *group.GetReflection();
  pb::Message* entry = nullptr;
  for (int i = 0; i < reflection.FieldSize(group, &table) && !entry; ++i) {
    pb::Message* const one = reflection.MutableRepeatedMessage(&group, &table, i);
    entry = text_of(load(*one, name)) == key ? one : nullptr;
  }
  if (!entry) {
    entry = reflection.AddMessage(&group, &table);
    store(*entry, name, key);
  }
  const auto* const number = table.message_type()->FindFieldByName("value");
  const auto* const text = table.message_type()->FindFieldByName("text");
  entry->GetReflection()->ClearField(entry, text);
  if (value == "true" || value == "false") {
    return assign(*entry, number, value == "true" ? "1" : "0", where);
  }
  if (assign(*entry, number, value, where)) {
    return {};
  }
  entry->GetReflection()->ClearField(entry, number);
  return assign(*entry, text, value, where);
}

/// A value, or a list of them. An empty list with a default would be the default when all is resolved.
Result<void> set_plain(pb::Message& group,
                       const pb::FieldDescriptor& field,
                       std::string_view value,
                       const std::string& where) {
  const std::string& list = field.options().GetExtension(proto::default_list);
  auto done = assign(group, &field, value, where);
  if (done && !list.empty() && group.GetReflection()->FieldSize(group, &field) == 0) {
    return usage(where + ": an empty list would be taken for the default, " + list +
                 "; write that, or at least one value");
  }
  return done;
}

/// Walks down `path`, selecting the alternatives on the way, and sets what it ends at.
Result<void> set_path(pb::Message& experiment, const std::string& path, std::string_view value) {
  const std::string where = legible(path);
  pb::Message* group = &experiment;
  std::string above;  // the path to `group`
  while (true) {
    const std::size_t begin = above.empty() ? 0 : above.size() + 1;
    const std::string name = path.substr(begin, path.find('.', begin) - begin);
    const pb::FieldDescriptor* field = group->GetDescriptor()->FindFieldByName(name);
    if (!field || is_internal(*field)) {
      return unknown_key(where, *group->GetDescriptor(), above, name);
    }
    above = under(above, name);
    const bool last = above.size() == path.size();
    if (!is_group(*field)) {
      return last ? set_plain(*group, *field, value, where)
                  : usage(where + ": " + above + " is a value and has no keys");
    }
    if (field->is_repeated()) {
      if (last && value == "[]") {
        group->GetReflection()->ClearField(group, field);
        return {};
      }
      if (is_table(*field)) {
        const std::string key = last ? "" : path.substr(above.size() + 1);
        return key.empty() || key.find('.') != key.npos
                   ? usage(where + ": an entry is set by " + above + ".NAME=value")
                   : set_entry(*group, *field, key, value, where);
      }
      return usage(where + ": " + above + " is a list of groups, write it in a file (" +
                   field->name() + " { ... } for each)");
    }
    group = group->GetReflection()->MutableMessage(group, field);
    if (last) {
      return choose_by_name(*group, *field, value, path);
    }
  }
}

/// The weights `nesterov` are stash + NAdam (Ajanthan et al. 2025): the optimizer comes with them
/// where none has been chosen, and whatever has been given of it stays.
void pair_with_nadam(proto::Optimizer& optimizer) {
  if (optimizer.has_rule()) {
    return;
  }
  optimizer.set_rule(proto::OptimizerRule::nadamw);
  if (!optimizer.has_momentum()) {
    optimizer.set_momentum(0.99);
  }
  if (!optimizer.has_learning_rate()) {
    optimizer.set_learning_rate(0.001);
  }
}

}  // namespace

Result<void> set_value(proto::Experiment& experiment, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string path(trimmed(assignment.substr(0, equals)));
  if (equals == assignment.npos || path.empty()) {
    return usage(quoted(assignment) + " is not path=value, such as pipeline.stages=4");
  }
  const std::string_view value = trimmed(assignment.substr(equals + 1));
  if (assignment.size() > kTextBytesMax) {
    return usage(legible(path) + ": the value is longer than 1 MiB");
  }
  if (valid_utf8(assignment) < assignment.size()) {
    return usage(legible(path) + ": " + quoted(value) + " is not valid UTF-8");
  }
  proto::Experiment changed = experiment;  // an error leaves the experiment as it was
  if (const auto meant = meant_by(assignment); !meant.empty()) {
    for (const std::string& one : meant) {
      TROUPE_TRY(set_value(changed, one));
    }
    experiment.Swap(&changed);
    return {};
  }
  TROUPE_TRY(set_path(changed, path, value));
  if (path == "pipeline.weights" && changed.pipeline().weights().has_nesterov()) {
    pair_with_nadam(*changed.mutable_optimizer());
  }
  if (path.starts_with("optimizer.custom.")) {  // as a choice is selected by what is set below it
    changed.mutable_optimizer()->set_rule(proto::OptimizerRule::custom);
  }
  experiment.Swap(&changed);
  return {};
}

// -- defaults ------------------------------------------------------------------------------------

namespace {

void fill_in_defaults(pb::Message& group) {
  const pb::Descriptor& type = *group.GetDescriptor();
  const pb::Reflection& reflection = *group.GetReflection();
  const pb::OneofDescriptor* kind = kind_of(type);
  if (kind && !reflection.HasOneof(group, kind)) {
    reflection.MutableMessage(&group, &default_alternative(*kind));
  }
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor* field = type.field(i);
    if (is_table(*field) || (field->message_type() == proto::CustomScheme::descriptor() &&
                             !reflection.HasField(group, field))) {
      continue;  // what is not given there has the defaults of what a program has registered
    }
    if (field->is_repeated() && is_group(*field)) {
      for (int element = 0; element < reflection.FieldSize(group, field); ++element) {
        fill_in_defaults(*reflection.MutableRepeatedMessage(&group, field, element));
      }
    } else if (field->is_repeated()) {
      const std::string& list = field->options().GetExtension(proto::default_list);
      if (reflection.FieldSize(group, field) == 0 && !list.empty()) {
        const auto done = assign(group, field, list, field->full_name());
        TROUPE_CHECK(done, "[experiment] default_list of ", done.error().message);
      }
    } else if (!is_group(*field)) {
      store(group, field, load(group, field));  // an unset field loads as its default
    } else if (!field->containing_oneof() || reflection.HasField(group, field)) {
      fill_in_defaults(*reflection.MutableMessage(&group, field));
    }
  }
}

}  // namespace

Result<void> resolve(proto::Experiment& experiment) {
  if (experiment.optimizer().has_custom() && !experiment.optimizer().has_rule()) {
    experiment.mutable_optimizer()->set_rule(proto::OptimizerRule::custom);
  }
  fill_in_defaults(experiment);
  return check_values(experiment, Bounds::checked, "");
}

// -- printing ------------------------------------------------------------------------------------

std::string print_experiment(const proto::Experiment& experiment) {
  pb::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  const bool printed = printer.PrintToString(experiment, &text);
  TROUPE_CHECK(printed, "[print_experiment] protobuf failed to print");
  return "# An experiment with every default written out; troupe run takes it as it is.\n" + text;
}

std::string choice_name(const pb::Message& choice) {
  const pb::OneofDescriptor* kind = kind_of(*choice.GetDescriptor());
  TROUPE_CHECK(kind, "[choice_name] not a choice: ", choice.GetDescriptor()->full_name());
  const auto* field = choice.GetReflection()->GetOneofFieldDescriptor(choice, kind);
  return field ? field->name() : "";
}

}  // namespace troupe
