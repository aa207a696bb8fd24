// A table of one's own: a CSV file, a row a sample. One column is the target, a class (a word or a
// whole number) or a number to predict; the others are numbers, or words that become one column each.
//
//   length,width,species           x                      label
//   5.1,3.5,setosa          ->     -0.9  1.0              0
//   7.0,3.2,versicolor             1.1  -0.3              1
#pragma once

#include "kernels/result.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <memory>

namespace troupe::proto {
class Csv;
}  // namespace troupe::proto

namespace troupe {

/// Whether the options make sense by themselves. Error (usage).
Result<void> check_csv_options(const proto::Csv& options);

/// Reads the file, plain or gzip's, of at most 1 GiB, and that of `test_path`, or draws test samples by
/// `seed`. Classes are numbered as their names sort (as numbers where all are), and so are the columns
/// of words; both are those of the file of training samples, or of `prepared` (as open_dataset's). Error (data) with path, line and column
/// where a file is malformed, a field is empty or no number, or a word of the test file is new; (usage)
/// where an option names a column that there is not.
Result<std::shared_ptr<const Dataset>> open_csv(const proto::Csv& options,
                                                std::uint64_t seed,
                                                const Preparation* prepared = nullptr);

}  // namespace troupe
