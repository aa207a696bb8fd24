// A data set of the right sizes in place of one that is not here: enough to plan a run, not to make one.
#pragma once

#include "runtime/data/dataset.hpp"

#include <memory>

namespace troupe::proto {
class Data;
}  // namespace troupe::proto

namespace troupe {

/// Of the data sets that everybody has alike: MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100. Its samples are zeros. Null for
/// every other choice. Error (data) where more samples are asked for than there are.
Result<std::shared_ptr<const Dataset>> stand_in_for(const proto::Data& data);

}  // namespace troupe
