// What an experiment's keys are, for the stubs that editors complete them from.
#include "messages/experiment/schema.hpp"

#include "apps/python/command.hpp"
#include "experiment/options.pb.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace troupe::python {
namespace {

using namespace schema;

/// What Python has for a value of the field: "int", "float", "str", "bool", "group", "choice" or "table".
const char* type_of(const pb::FieldDescriptor& field) {
  if (is_table(field)) {
    return "table";
  }
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      return is_choice(field) ? "choice" : "group";
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return "bool";
    case pb::FieldDescriptor::CPPTYPE_STRING:
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return "str";
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return "float";
    default:
      return "int";
  }
}

}  // namespace

void bind_schema(nb::module_& m) {
  // -> (path, type, whether it is a list, names that are legal, doc) of every key, each group before what is in it.
  m.def("schema", [] {
    nb::list all;
    for (const auto& [path, field] : all_keys()) {
      const Names names = is_choice(*field)    ? alternatives_of(*kind_of(*field->message_type()))
                          : field->enum_type() ? schema::values_of(*field->enum_type())
                                               : Names{};
      const std::string& doc = field->options().GetExtension(proto::doc);
      all.append(nb::make_tuple(path, type_of(*field), field->is_repeated(), names, doc));
    }
    return all;
  });
}

}  // namespace troupe::python
