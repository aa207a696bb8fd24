#pragma once

#include "apps/python/hold.hpp"
#include "runtime/model/layer.hpp"

#include <memory>

namespace troupe::python {

/// Of an object as troupe.torch.Layer is. With the GIL.
std::shared_ptr<const Layer> layer_of(nb::handle object);

/// Networks whose layers are Python objects: model.custom.name=python, found by its option `id`.
void bind_layers(nb::module_& m);

}  // namespace troupe::python
