// Data sets of Python's: arrays that are read where they lie, and objects that gather samples themselves.
#pragma once

#include "apps/python/hold.hpp"
#include "runtime/data/dataset.hpp"

#include <memory>

namespace troupe::python {

/// What Python holds of a data set.
struct Data {
  std::shared_ptr<const Dataset> set;
};

void bind_data(nb::module_& m);

}  // namespace troupe::python
