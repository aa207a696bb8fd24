// What schemes of every kind have in common whose parts are Python objects: a class of troupe/schemes.py says what it is
// called and which options it has, and is called to make each part.
#pragma once

#include "apps/python/hold.hpp"
#include "runtime/schemes/registry.hpp"

#include <string>
#include <vector>

namespace troupe {
class Archive;
}

namespace troupe::python {

/// Of a class with `name`, `summary` and `options`. It takes the place of the one of that name that was
/// registered before. With the GIL.
SchemeInfo info_of(nb::handle of);

/// ValueError where a scheme could not be registered.
void raise_where_refused(const Result<void>& made);

/// What an object keeps, by its state() -> (numbers, arrays) and restore(numbers, arrays). ArchiveError where it has none.
void archive_state(Archive& a, nb::handle object, const std::string& name);

/// {name: number}: what an experiment gives a scheme. `number`: of an option's name. With the GIL.
template <class Number>
nb::dict values_of(const std::vector<Option>& options, Number&& number) {
  nb::dict values;
  for (const Option& option : options) {
    values[option.name.c_str()] = number(option);
  }
  return values;
}

inline nb::dict values_of(const std::vector<Option>& options, const OptionValues& values) {
  return values_of(options, [&](const Option& option) { return values.number(option.name); });
}

/// Server rules and weight policies; optimizers, codecs and layers; schedules; exchanges between peers; decoupled
/// modules; machines of one's own.
void bind_schemes(nb::module_& m);
void bind_parts(nb::module_& m);
void bind_schedules(nb::module_& m);
void bind_exchanges(nb::module_& m);
void bind_decoupled(nb::module_& m);
void bind_extensions(nb::module_& m);

}  // namespace troupe::python
