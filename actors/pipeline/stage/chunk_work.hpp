// The work of a stage on its chunks' micro-batches: forwards, backwards and updates, as jobs and messages. When each of
// them begins is the Stage's to say.
#pragma once

#include "actors/pipeline/stage/angle_notes.hpp"
#include "actors/pipeline/stage/arrivals.hpp"
#include "actors/pipeline/stage/chunk_statistics.hpp"
#include "actors/pipeline/stage/decoupled_modules.hpp"
#include "actors/pipeline/stage/drawn_inputs.hpp"
#include "actors/pipeline/stage/gradient_sums.hpp"
#include "actors/pipeline/stage/sequence_cursor.hpp"
#include "actors/pipeline/stage/shard_client.hpp"
#include "actors/pipeline/stage/stashes.hpp"
#include "actors/pipeline/stage/weights_in_hand.hpp"
#include "runtime/data/batch_sizes.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/policies/view.hpp"
#include "runtime/schemes/schedules/schedule.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// What a stage is made of.
struct StageConfig {
  /// Whom it talks to.
  struct Company {
    Ref<StageRole> self;
    std::vector<Ref<StageRole>> stages;    // all of the replica's
    std::vector<Ref<ShardRole>> shard_of;  // by chunk
    Ref<SourceRole> source;
    Ref<DirectorRole> director;
  };

  /// Which samples its mini-batches are of.
  struct Samples {
    BatchSizes sizes;
    std::int64_t passed = 0;  // as the Source's
    std::int32_t replicas = 1;
    std::uint64_t seed = 1;
  };

  /// Of its chunks' buffers.
  struct Statistics {
    EvaluationPlan evaluation;                            // steps whose buffers a Mark will read
    std::map<std::int32_t, std::vector<Tensor>> initial;  // by chunk of this stage
  };

  Company company;
  std::int32_t replica = 0;
  std::int32_t stage = 0;
  bool served = false;   // replicas share weights: others know which step is the last
  bool returns = false;  // its replica comes back: it begins with Rejoin
  Samples samples;
  std::shared_ptr<const Schedule> schedule;
  std::shared_ptr<const ViewPolicy> view;
  KeepActivations keep = KeepActivations::fifo;
  std::int64_t gap_every = 0;  // mini-batches between two measurements of the gap; 0: never
  std::vector<std::shared_ptr<const Chunk>> chunks;  // all of the network's, by chunk
  Statistics statistics;
  std::int32_t credit_chunk = 0;  // whose forwards let the Source admit more
  std::optional<DecoupledModules::Config> modules{};
  std::optional<AngleNotes::Config> angle{};
};

class ChunkWork {
 public:
  /// Both outlive this.
  ChunkWork(const StageConfig& config, const SequenceCursor& cursor);
  ChunkWork(const ChunkWork&) = delete;  // its parts refer to one another
  ChunkWork& operator=(const ChunkWork&) = delete;

  // -- what comes ----------------------------------------------------------------------------------

  /// An Activation, Labels or an ErrorSignal.
  template <class M>
  void keep(M&& m) {
    arrivals_.keep(std::forward<M>(m));
  }

  /// Takes the weights. False: they answer no open question.
  bool accept(PullReply& m) { return in_hand_.accept(m); }

  /// Which arrival the forward or backward `a` still lacks.
  std::optional<Want> missing(const Action& a) const {
    return arrivals_.missing(a, needs(a.chunk));
  }

  /// What `a` lacks and who is to send it, for people.
  std::string waits_for(const Action& a) const;

  // -- jobs ----------------------------------------------------------------------------------------

  /// Starts the forward or backward `a`, or a half of a backward. False: something is missing.
  bool start(const Action& a, double now, Effects& fx);

  /// What the job of `a` has made.
  void finish(const Action& a, ForwardPass&& out, Effects& fx);
  void finish(const Action& a, BackwardPass&& made, Effects& fx);
  void finish(const Action& a, InputGradient&& made, Effects& fx);
  void finish(const Action& a, WeightGradient&& made, Effects& fx);

  /// Pushes what the micro-batches of the update `a` have made.
  void push(const Action& a, Effects& fx);

  /// The forward or update `a` is left out: it changes no weights.
  void skip(const Action& a, double now, Effects& fx);

  /// The forward `a` is done, or left out.
  void give_credit(const Action& a, Effects& fx) const;

  // -- parts ---------------------------------------------------------------------------------------

  ShardClient& shards() { return shards_; }

  Stashes& stashes() { return stashes_; }

  ChunkStatistics& statistics() { return statistics_; }

  const ChunkStatistics& statistics() const { return statistics_; }

  /// None: backpropagation.
  const std::optional<DecoupledModules>& modules() const { return modules_; }

  /// Where modules draw their inputs from buffers.
  std::optional<DrawnInputs>& drawn() { return drawn_; }

  /// Its mini-batch 0 is mini-batch `first` of the replica: as the Source's.
  void begin_at(std::int64_t first) { first_ = first; }

  bool is_head(std::int32_t chunk) const { return c_.schedule->is_head(chunk); }

  /// What a forward has made, by chunk that is to get it: the parts of the section behind.
  std::vector<std::pair<std::int32_t, Bundle>> to_next_chunks(std::int32_t chunk,
                                                              Bundle made) const {
    return to_section(chunk, c_.schedule->behind(chunk), std::move(made));
  }

  /// Who has the micro-batch on that chunk, as Schedule::stage_of.
  Ref<StageRole> stage_of(std::int32_t chunk,
                          std::int64_t batch = 0,
                          std::int32_t micro_batch = 0) const {
    const std::int32_t stage = c_.schedule->stage_of(chunk, batch, micro_batch);
    return c_.company.stages[static_cast<std::size_t>(stage)];
  }

  Stamp stamp(const Action& a, std::int32_t chunk) const {
    return {c_.replica, chunk, a.batch, a.micro_batch};
  }

  void archive(Archive& a);

 private:
  bool start_forward(const Action& a, double now, Effects& fx);
  bool gather_weights(const Action& a, const View& view, Effects& fx);
  void ask_ahead(const Action& a, Effects& fx);
  View borrowed_view(const Action& a, std::size_t borrowed) const;
  bool start_backward(const Action& a, Effects& fx);
  void run_weight_gradient(const Action& a, Effects& fx);
  void keep_for_backward(const Action& a,
                         Arrivals::ForwardInput& in,
                         ForwardPass& out,
                         Effects& fx);
  void send_output(const Action& a, Bundle y, const Tensor& labels, Effects& fx);
  void finish_input_gradient(const Action& a, Bundle dx, Effects& fx);
  std::int64_t place(const Action& a) const;
  std::int64_t micro_batch_size(const Action& a) const;
  std::int64_t first_sample(const Action& a) const;
  std::int32_t divide_by(const Action& a) const;

  Arrivals::Needs needs(std::int32_t index) const {
    const bool head = is_head(index);
    Arrivals::Needs needs = modules_
                                ? modules_->needs(index)
                                : Arrivals::Needs{.inputs = chunk(index)->inputs(),
                                                  .labels = head,
                                                  .errors = head ? 0 : chunk(index)->outputs()};
    needs.of_source = c_.schedule->is_first(index);
    return needs;
  }

  std::vector<std::pair<std::int32_t, Bundle>> to_section(std::int32_t from,
                                                          std::int32_t first,
                                                          Bundle made) const;

  const std::shared_ptr<const Chunk>& chunk(std::int32_t index) const {
    return c_.chunks[static_cast<std::size_t>(index)];
  }

  /// In the replica's count, for records and modelled times.
  Stamp in_run(const Action& a) const {
    return {c_.replica, a.chunk, first_ + a.batch, a.micro_batch};
  }

  Run job(const Action& a, Work work) const {
    return {.work = work, .stage = c_.stage, .stamp = in_run(a)};
  }

  const StageConfig& c_;
  const SequenceCursor& cursor_;
  ShardClient shards_;
  WeightsInHand in_hand_;
  Arrivals arrivals_;
  Stashes stashes_;
  GradientSums sums_;
  ChunkStatistics statistics_;
  Weights
      forward_weights_;  // of the forward that runs: its chunk's own, then the slices that it borrows
  std::optional<DecoupledModules> modules_;
  std::optional<DrawnInputs> drawn_;
  std::optional<AngleNotes> angle_;  // where angles are measured
  std::int64_t first_ = 0;
};

}  // namespace troupe
