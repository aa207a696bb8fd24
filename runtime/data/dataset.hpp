// Data sets: samples by index, and the order in which a run meets them.
#pragma once

#include "kernels/result.hpp"
#include "kernels/shape.hpp"
#include "kernels/tensor.hpp"
#include "messages/proto.hpp"
#include "runtime/data/batch_sizes.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

struct Preparation;
class Vocabulary;

enum class Split : std::uint8_t { train, test };

/// Where samples are gathered to, one after another. What does not apply is empty.
struct Samples {
  std::span<float> x;              // (B, sample shape), where input_type() is float32
  std::span<std::int32_t> tokens;  // (B, sample shape), where it is int32
  std::span<std::int32_t> labels;  // (B, labels_per_sample()), where classes() > 0
  std::span<float> targets;        // (B, values()), where values() > 0
};

/// Immutable once made; every method is safe from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size(Split split) const = 0;

  /// Of one sample, without the batch: (H, W, C) for images, (F) for vectors, (T) for text.
  virtual Shape sample_shape() const = 0;

  /// int32 where a sample is tokens, each below classes().
  virtual DType input_type() const { return DType::float32; }

  /// Number of classes where targets are labels; 0 where they are values.
  virtual int classes() const = 0;

  /// T for text, whose every token has the next one as its label.
  virtual std::int64_t labels_per_sample() const { return 1; }

  /// Width of a target where targets are values; 0 where they are labels.
  virtual std::int64_t values() const { return 0; }

  /// Whether training samples are read in order, in streams (BatchOrder).
  virtual bool contiguous() const { return false; }

  /// What the tokens of text stand for; null where samples are not text. Lives as long as this.
  virtual const Vocabulary* vocabulary() const { return nullptr; }

  /// What its samples have gone through, and what its classes are called; null where there is nothing of the
  /// kind. Lives as long as this.
  virtual const Preparation* preparation() const { return nullptr; }

  /// Writes the samples `indices` and what is to be said of them. `epoch` is the key of what
  /// differs from one pass over the training samples to the next (crops, mirroring, where a window
  /// of text begins); 0 for test samples, which never change.
  virtual void gather(Split split,
                      std::span<const std::int64_t> indices,
                      std::int64_t epoch,
                      const Samples& to) const = 0;
};

/// Opens the data set of a resolved experiment. Error (data) with one sentence: what is missing or
/// malformed, where it was looked for, and the key to set; nothing is read twice and nothing is
/// believed before it is checked. Error (usage) where an option does not fit the data: a batch_size
/// above the number of training samples, a pool that does not divide the side.
/// `prepared`: samples go through this (what weights were trained with), not through what the training
/// samples come to; classes are its; null: as they are found.
Result<std::shared_ptr<const Dataset>> open_dataset(const proto::Data& data,
                                                    std::uint64_t seed,
                                                    const Preparation* prepared = nullptr);

/// The shuffles of a data set by epoch, for all who go through it in one order: replicas that are in
/// the same epoch share it. Safe from several threads at once.
class Shuffles {
 public:
  using Order = std::vector<std::int64_t>;  // (samples)

  Shuffles(std::int64_t samples, std::uint64_t seed) : samples_(samples), seed_(seed) {}

  std::shared_ptr<const Order> of(std::int64_t epoch);

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  std::mutex mutex_;
  std::map<std::int64_t, std::weak_ptr<const Order>> orders_;  // by epoch
};

/// The order of a run. An epoch is a shuffle of the training samples by (seed, epoch), from which
/// mini-batches are taken one after the other; a rest too short for one is left out. Or the samples lie side by side
/// in as many streams as a mini-batch has samples, and each takes the next one of every stream; from epoch to epoch it
/// goes on with the stream behind, which begins where its own ends.
class BatchOrder {
 public:
  /// batch_size in [1, samples].
  BatchOrder(std::int64_t samples, std::int64_t batch_size, std::uint64_t seed)
      : BatchOrder(samples, BatchSizes(samples, batch_size), seed) {}

  /// `sizes`: of as many samples.
  BatchOrder(std::int64_t samples, BatchSizes sizes, std::uint64_t seed)
      : BatchOrder(std::move(sizes), std::make_shared<Shuffles>(samples, seed)) {}

  /// `sizes`: of as many samples as are shuffled.
  BatchOrder(BatchSizes sizes, std::shared_ptr<Shuffles> shuffles)
      : sizes_(std::move(sizes)), shuffles_(std::move(shuffles)) {}

  /// Streams. `sizes` do not grow.
  explicit BatchOrder(BatchSizes sizes) : sizes_(std::move(sizes)) {}

  std::int64_t batches_per_epoch() const { return sizes_.batches_per_epoch(); }

  std::int64_t epoch(std::int64_t batch) const { return sizes_.epoch(batch); }

  /// The samples of micro-batch `part` of `parts` of mini-batch `batch`: its size / parts of them.
  /// The span is valid until the next call. `parts` divides the size.
  std::span<const std::int64_t> indices(std::int64_t batch, std::int64_t part, std::int64_t parts);

 private:
  BatchSizes sizes_;
  std::shared_ptr<Shuffles> shuffles_;  // null: streams
  std::int64_t shuffled_epoch_ = -1;
  std::shared_ptr<const Shuffles::Order> order_;  // of that epoch
  std::vector<std::int64_t> next_;                // of each stream
};

}  // namespace troupe
