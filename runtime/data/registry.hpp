// Data sets by name: built in, and registered by a program of one's own (data.custom). A program that
// has its samples in memory makes the data set with memory_dataset() (runtime/data/memory.hpp).
#pragma once

#include "messages/proto.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/schemes/registry.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace troupe {

/// What a data set is opened from.
struct DatasetContext {
  const proto::Data& data;                // resolved
  OptionValues values;                    // of data.custom
  std::uint64_t seed = 0;                 // the experiment's
  const Preparation* prepared = nullptr;  // as open_dataset's
};

struct DatasetScheme {
  SchemeInfo info{};
  /// Error (data) with a sentence where samples are missing or malformed, (usage) where options do not
  /// fit. The same options and seed give the same samples.
  std::function<Result<std::shared_ptr<const Dataset>>(const DatasetContext& context)> open{};
};

/// Makes a data set known under its name, before any experiment is checked. Error (usage) where the
/// name is taken or not in snake_case, or the function is missing.
Result<void> register_dataset(DatasetScheme scheme);

/// All of them, built-in ones first.
const Registry<DatasetScheme>& dataset_schemes();

/// The data set that a resolved experiment has chosen. Error (usage) where data.custom names none that
/// is registered, or gives options that it has not.
Result<const DatasetScheme*> dataset_scheme(const proto::Data& data);

/// Error (usage) where there is none, or it says of itself that it does not go with the rest of a
/// resolved experiment (SchemeInfo::check).
Result<void> check_data(const proto::Experiment& experiment);

}  // namespace troupe
