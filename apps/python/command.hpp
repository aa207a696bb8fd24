#pragma once

#include "apps/python/hold.hpp"

namespace troupe::python {

/// The command line, for Python to read what it says; and conformance, finding by finding.
void bind_command(nb::module_& m);
/// The keys of an experiment.
void bind_schema(nb::module_& m);

}  // namespace troupe::python
