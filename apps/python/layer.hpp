#pragma once

#include "apps/python/hold.hpp"

namespace troupe::python {

/// Networks whose layers are Python objects: model.custom.name=python, found by its option `id`.
void bind_layers(nb::module_& m);

}  // namespace troupe::python
