#include "apps/topologies/checks.hpp"

#include "actors/exchange/built_in.hpp"
#include "apps/topologies/copies.hpp"
#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/hosts.hpp"
#include "apps/topologies/sandblaster.hpp"
#include "apps/topologies/topology.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

namespace troupe {
namespace {

std::int64_t training_samples(const Blueprint& b) {
  return b.data->size(Split::train);
}

std::int64_t replicas_of(const Blueprint& b) {
  return b.experiment->replicas().count();
}

bool by_label(const Blueprint& b) {
  return b.experiment->replicas().split() == proto::Replicas::by_label;
}

Result<void> check_layers(const Blueprint& b) {
  auto options = schedule_options(b.experiment);
  TROUPE_TRY(options);
  options->stage_of.clear();  // a check of its own
  return check_depth(b.network, static_cast<std::int32_t>(placement_of(*options).size()));
}

Result<void> check_views(const Blueprint& b) {
  return check_policy(b.experiment, *b.schedule);
}

/// The first chunk with fewer tensors than replicas.shards asks slices of; -1: none.
std::int32_t too_small(const Blueprint& b) {
  for (const auto& chunk : b.chunks) {
    if (chunk->layout().slice_sizes.size() < slices_wanted(b)) {
      return chunk->index();
    }
  }
  return -1;
}

/// Replica 0 alone says where a run ends that is interrupted; a stage of another one that is beyond
/// it by then waits for ever, and may owe gradients of its other chunks.
bool can_be_interrupted(const Blueprint& b) {
  return !reduces(b.experiment) || b.schedule->flushed ||
         b.schedule->chunks <= b.experiment->pipeline().stages();
}

Constraints<Blueprint> data_checks() {
  using B = Blueprint;
  return {
      {"classes_to_deal_by",
       [](const B& b) {
         return !by_label(b) || (b.data->classes() > 0 && b.data->labels_per_sample() == 1);
       },
       "replicas.split: by_label needs samples of one class each"},
      {"the_best_by_accuracy",
       [](const B& b) {
         return b.data->classes() > 0 || b.experiment->stop().monitor() != proto::Stop::accuracy;
       },
       "stop.monitor: accuracy needs data with classes; use loss"},
      {"a_batch_of_a_share",
       [](const B& b) {
         return !by_label(b) ||
                        training_samples(b) / replicas_of(b) >= b.experiment->data().batch_size()
                    ? ""
                    : fill_in(
                          "data.batch_size: {} is more than a replica's share of the {} training "
                          "samples",
                          b.experiment->data().batch_size(),
                          training_samples(b));
       }},
      {"classes_to_be_accurate_in",
       [](const B& b) {
         return b.experiment->stop().target_accuracy() == 0 || b.data->classes() > 0;
       },
       "stop.target_accuracy: needs record.evaluate and data with classes"},
  };
}

Constraints<Blueprint> network_checks() {
  using B = Blueprint;
  return {
      // Before the schedule, which is long to make for many stages.
      {"a_layer_for_each_stage", check_layers},
      {"a_layer_for_each_chunk",
       [](const B& b) {
         return b.experiment->pipeline().stage_of_size() <=
                        static_cast<int>(b.network.layers.size())
                    ? ""
                    : fill_in("pipeline.stage_of: it has {} chunks, and the network only {} layers",
                              b.experiment->pipeline().stage_of_size(),
                              b.network.layers.size());
       }},
  };
}

bool has_buffers(const Network& network) {
  return std::ranges::any_of(network.layers,
                             [](const auto& layer) { return !layer->buffers().empty(); });
}

Constraints<Blueprint> schedule_checks() {
  using B = Blueprint;
  return {
      {"weights_of_the_schedule", check_views},
      {"statistics_of_the_best",
       [](const B& b) {
         return !b.experiment->record().best() || b.experiment->replicas().count() == 1 ||
                !has_buffers(b.network);
       },
       "record.best: batch normalisation keeps running statistics, and of several replicas only "
       "the last ones are there; use false"},
      {"copies_without_statistics",
       [](const B& b) { return b.schedule->copies.empty() || !has_buffers(b.network); },
       "pipeline: batch normalisation keeps running statistics, of which each stage that takes "
       "turns with others would have its own; use a network without it, or neither "
       "pipeline.copies nor schedule dual_pipe"},
      {"all_reduce_that_can_be_interrupted",
       [](const B& b) {
         return can_be_interrupted(b)
                    ? ""
                    : fill_in(
                          "replicas.exchange.synchronous.reduction: ring and tree do not go with "
                          "several chunks a stage (pipeline.stage_of) under {}; use server, "
                          "or a flushed schedule",
                          b.schedule->options.name);
       }},
  };
}

/// Whether some chunk reads a parameter of another.
bool has_tied(const Blueprint& b) {
  return std::ranges::any_of(b.chunks,
                             [](const auto& chunk) { return !chunk->borrowed().empty(); });
}

/// Whether a cut of the network goes through a skip connection.
bool cuts_skip(const Blueprint& b) {
  return std::any_of(b.cut.begin() + 1, b.cut.end(), [&](std::int64_t layer) {
    return b.network.after[static_cast<std::size_t>(layer - 1)].size() > 1;
  });
}

/// Layers before which no skip connection is open: "1, 12, 23".
std::string whole_places(const Blueprint& b) {
  constexpr std::size_t kTold = 12;
  std::string text;
  std::size_t found = 0;
  for (std::size_t layer = 1; layer < b.network.after.size() && found <= kTold; ++layer) {
    if (b.network.after[layer - 1].size() == 1 && ++found <= kTold) {
      text += concat(found > 1 ? ", " : "", layer);
    }
  }
  return found > kTold ? text + ", ..." : text;
}

/// Of modules that take their error signals elsewhere than by backpropagation.
Result<void> check_modules(const Blueprint& b) {
  const DecoupledScheme* const method = decoupled_of(b.experiment);
  const auto refuse = [](std::string why) {
    return Error{ErrorKind::usage, std::move(why)};
  };
  if (!method) {
    return {};
  }
  if (b.chunks.size() < 2) {
    return refuse(
        "decoupled: a network in one part has no modules to decouple; set pipeline.stages to 2 or "
        "more");
  }
  if (has_tied(b)) {
    return refuse(
        fill_in("decoupled: modules that share a tied parameter wait for each other; set "
                "model.{}.tied=false, or decoupled=none",
                choice_name(b.experiment->model())));
  }
  if (method->from == SignalFrom::next) {
    return {};
  }
  if (cuts_skip(b)) {
    return refuse(
        fill_in("pipeline.cut: a module that makes its error signal itself, or has a predictor, "
                "ends where no skip connection is open; modules may begin at the layers {}",
                whole_places(b)));
  }
  if (method->influence && (b.data->classes() > 0 || b.network.shape().elements() != 1)) {
    return refuse(
        "decoupled: a module's influence is on one output, which is a value, and its error is that "
        "output's; use data with one target that is a value, or a method other than kickback");
  }
  if (const auto plan = predictor_plan(b.experiment);
      plan && plan->conditioned && b.data->classes() == 0) {
    return refuse(
        "decoupled.synthetic.conditioned: the data's targets are values, no labels; use "
        "false");
  }
  if (const auto plan = predictor_plan(b.experiment);
      plan && plan->similarity > 0 && b.data->classes() < 2) {
    return refuse(
        "decoupled.greedy.similarity: samples are to be as alike as their labels, and the data's "
        "targets are values; use 0");
  }
  return {};
}

Constraints<Blueprint> chunk_checks() {
  return {
      {"modules_to_decouple", check_modules},
      {"angle_of_untied_modules",
       [](const Blueprint& b) {
         return b.experiment->record().angle_every() == 0 || !has_tied(b)
                    ? std::string()
                    : fill_in(
                          "record.angle_every: the gradient of a parameter that modules share is "
                          "made by all of them; use 0, or model.{}.tied=false",
                          choice_name(b.experiment->model()));
       }},
      {"copies_without_tied_parameters",
       [](const Blueprint& b) { return b.schedule->copies.empty() || !has_tied(b); },
       "pipeline: chunks that share a parameter have one stage each; use model.gpt.tied=false, or "
       "neither pipeline.copies nor schedule dual_pipe"},
      {"a_tensor_for_each_shard",
       [](const Blueprint& b) {
         if (too_small(b) < 0) {
           return std::string();
         }
         const auto chunk = static_cast<std::size_t>(too_small(b));
         return fill_in("replicas.shards: chunk {} has {} tensors, too few for {} slices",
                        chunk,
                        b.chunks[chunk]->layout().entries.size(),
                        b.experiment->replicas().shards());
       }},
      copies_of_somebody(),
      {"hosts_for_all_machines", check_hosts},
  };
}

template <class Subject>
Constraints<Subject> joined_rows(std::initializer_list<Constraints<Subject>> parts) {
  Constraints<Subject> all;
  for (const Constraints<Subject>& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// Whether seconds of the virtual clock go by at all.
bool time_advances(const Blueprint& b) {
  const std::vector<ChunkTimes> times = modelled_times(b);
  return std::any_of(times.begin(), times.end(), [&](const ChunkTimes& t) {
    return t.forward + t.input_gradient + t.weight_gradient + t.update > 0 ||
           ((t.link > 0 || t.link_back > 0) && times.size() > 1);
  });
}

bool is_held_back(const proto::Experiment& e) {
  const auto& factors = e.clock().workers().hold_back();
  return std::any_of(factors.begin(), factors.end(), [](double factor) { return factor > 1; });
}

}  // namespace

const Constraints<OnClock>& clock_checks() {
  static const Constraints<OnClock> rows{
      {"an_order_that_can_be_repeated",
       [](const OnClock& run) {
         return run.virtual_clock || !run.experiment.record().order() ||
                shared_by(run.experiment) != Shared::buffer;
       },
       "record.order: the order of messages says nothing of what threads do to a shared buffer, so "
       "such a run cannot be repeated; set record.order=false, or use troupe sim"},
      {"hold_back_of_real_seconds",
       [](const OnClock& run) {
         return !is_held_back(run.experiment) ||
                        !(run.virtual_clock || run.experiment.clock().modelled())
                    ? ""
                    : fill_in(
                          "clock.workers.hold_back: stretches the seconds that work takes on the "
                          "real clock, and {} they are modelled; slow replicas are "
                          "clock.workers.slowness there",
                          run.virtual_clock ? "on the virtual one" : "with clock.modelled");
       }},
      {"faults_that_are_simulated",
       [](const OnClock& run) {
         return run.virtual_clock || !any_faults(run.experiment.clock().faults());
       },
       "clock.faults: hosts, links and what befalls them are simulated, on the virtual clock "
       "alone; use troupe sim"},
  };
  return rows;
}

const Constraints<Blueprint>& blueprint_checks(Known known) {
  using B = Blueprint;
  static const auto of_data = joined_rows<B>({data_checks(), sandblaster_data_checks()});
  static const auto of_length = hogwild_length_checks();
  static const auto of_network = network_checks();
  static const auto of_schedule = schedule_checks();
  static const auto of_chunks = joined_rows<B>({chunk_checks(), sandblaster_chunk_checks()});
  switch (known) {
    case Known::data:
      return of_data;
    case Known::length:
      return of_length;
    case Known::network:
      return of_network;
    case Known::schedule:
      return of_schedule;
    case Known::chunks:
      break;
  }
  return of_chunks;
}

Result<void> check_experiment(const proto::Experiment& resolved) {
  TROUPE_TRY(register_peer_exchanges());
  return check_rows(experiment_checks(), resolved);
}

Result<void> check_clock(const proto::Experiment& resolved, bool virtual_clock) {
  return check_rows(clock_checks(), OnClock{resolved, virtual_clock});
}

Result<void> check_clock(const Blueprint& b, bool virtual_clock) {
  const proto::Stop& stop = b.experiment->stop();
  if (virtual_clock && b.batches == 0 && stop.target_accuracy() == 0 && !time_advances(b)) {
    return usage_error(
        "stop.seconds: the run would never end, as all modelled times (clock) are 0; set "
        "stop.updates or stop.epochs");
  }
  return check_clock(b.experiment, virtual_clock);
}

Result<void> check_blueprint(const Blueprint& blueprint, Known known) {
  return check_rows(blueprint_checks(known), blueprint);
}

}  // namespace troupe
