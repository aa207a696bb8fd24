// A run as TensorBoard shows it: RUN/tensorboard has an event file with what metrics.jsonl has, written from the same lines, so
// that a line of a new kind needs nothing here.
//
//   {"kind":"train","step":50,"loss":0.4,"idle":{"data":0.1}}  ->  scalars train/loss, train/idle/data at step 50
//   {"kind":"gap","step":99,"shard":"shard-0","gap":1e-4}      ->  scalar gap/shard-0/gap
//   a line without a step, or with words                       ->  text under its kind
//
// Besides there are the resolved experiment, as text and as hyperparameters, and for each shard histograms of staleness and of the
// sampled gaps, each of what came since the one before. The lines of record.versions, one a micro-batch, are left to metrics.jsonl.
//
// The file is a row of records: length (8 bytes), its checksum, an Event, its checksum (CRC-32C, masked). Whoever reads takes a
// last record that is torn for one that is being written. A run that goes on has a further file, which begins with a record that says
// from which step on the older ones do not count, and with what metrics.jsonl has kept of that step.
#pragma once

#include "messages/proto.hpp"
#include "runtime/record/histogram.hpp"
#include "runtime/record/output_file.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

namespace tensorboard {
class Event;
class Summary;
}  // namespace tensorboard

class TensorBoard {
 public:
  struct Config {
    /// Times are those of the run's clock, so that the file is the same byte for byte; else the wall's.
    bool virtual_clock = false;
    std::optional<std::int64_t> resumed{};  // the step of the checkpoint that the run goes on from
    std::filesystem::path metrics{};        // metrics.jsonl as it was then; of a run that goes on
  };

  /// The next file of the folder, which is made where it is not there; of a run that begins the first. `experiment`: resolved.
  /// Error (lost) with path and reason.
  static Result<std::unique_ptr<TensorBoard>> open(const std::filesystem::path& folder,
                                                   const proto::Experiment& experiment,
                                                   const Config& config);

  /// Of metrics.jsonl, without its end.
  void line(std::string_view line);

  /// Of each shard so far; asked for at some of the lines.
  std::function<std::vector<Histogram>()> staleness{};

  /// After the last line. `done`: the run has ended as it was meant to.
  void finish(bool done);

  OutputFile& file() { return *file_; }

  const OutputFile& file() const { return *file_; }

 private:
  TensorBoard(std::unique_ptr<OutputFile> file, bool virtual_clock);

  double now() const;
  void begin(const proto::Experiment& experiment);
  void go_on(std::int64_t step, const std::filesystem::path& metrics);
  void histograms();
  void write(tensorboard::Event& event);
  void flush();

  std::unique_ptr<OutputFile> file_;
  bool virtual_clock_;
  double seconds_ = 0;     // of the run's clock
  std::int64_t step_ = 0;  // of the last line that has one
  std::int64_t histograms_at_ = 0;
  std::vector<Histogram> told_;                      // staleness, with the last histograms
  std::map<std::string, std::vector<double>> gaps_;  // by shard, since then
  std::chrono::steady_clock::time_point flushed_{};
};

/// The checksum of a record: CRC-32C (Castagnoli), turned by 15 bits plus a constant, as in TFRecord files.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace troupe
