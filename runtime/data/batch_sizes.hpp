// Which samples of which epoch's order each mini-batch of a run has, where mini-batches may grow.
//
// Smith et al. (ICLR 2018): what a schedule does to the noise scale eta N / B by dividing eta, it does
// as well by multiplying B. The run is a few segments, each of mini-batches of one size. A segment may
// begin within an epoch: its mini-batches go on where those of the one before have ended, and what
// is too short for another one is left out, as at any epoch's end.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

class BatchSizes {
 public:
  /// All alike. batch_size in [1, samples].
  BatchSizes(std::int64_t samples, std::int64_t batch_size);

  /// One sample, in batches of one.
  BatchSizes() : BatchSizes(1, 1) {}

  /// From the first mini-batch on before which the run has made `epochs`, mini-batches have
  /// `batch_size` samples, in [1, samples]. `epochs` is not less than at the last call.
  void grow(double epochs, std::int64_t batch_size);

  std::int64_t size(std::int64_t batch) const { return of(batch).size; }  // samples

  std::int64_t epoch(std::int64_t batch) const { return place(of(batch), batch).epoch; }

  /// Samples of the epoch before those of mini-batch `batch`.
  std::int64_t offset(std::int64_t batch) const { return place(of(batch), batch).offset; }

  /// Samples of all mini-batches before `batch`.
  std::int64_t samples_before(std::int64_t batch) const;

  /// Passes over the data that the first `batches` mini-batches are; a short rest that is left out
  /// counts as seen.
  double epochs(std::int64_t batches) const;

  /// The fewest mini-batches that make `epochs` passes; at most 2^53.
  std::int64_t batches(double epochs) const;

  /// As long as mini-batches have the size that they begin with.
  std::int64_t batches_per_epoch() const { return samples_ / segments_.front().size; }

 private:
  struct Segment {
    std::int64_t first = 0;   // mini-batch
    std::int64_t size = 1;    // samples of each
    std::int64_t epoch = 0;   // where the first stands
    std::int64_t offset = 0;  // samples into it
    double epochs = 0;        // passes made before it
    std::int64_t before = 0;  // samples of all mini-batches before it
  };

  struct Place {
    std::int64_t epoch = 0;
    std::int64_t offset = 0;
  };

  const Segment& of(std::int64_t batch) const;
  std::int64_t head(const Segment& s) const;
  Place place(const Segment& s, std::int64_t batch) const;

  std::int64_t samples_;
  std::vector<Segment> segments_;
};

/// Error (usage) where data.growth has no stop.epochs to take shares of, its points do not ascend, or
/// pipeline.micro_batches does not divide a size.
Result<void> check_growth(const proto::Experiment& experiment);

/// Those of a resolved experiment with `samples` training samples: data.batch_size and data.growth,
/// each size rounded to a whole number. Error (usage) as check_growth's, or where stop.epochs is too
/// many to be counted, or a size is more than `samples`.
Result<BatchSizes> batch_sizes(const proto::Experiment& experiment, std::int64_t samples);

}  // namespace troupe
