#include "apps/plan/plan.hpp"

#include "apps/cli/text.hpp"
#include "apps/plan/codecs.hpp"
#include "apps/plan/forecast.hpp"
#include "apps/plan/layers.hpp"
#include "apps/plan/links.hpp"
#include "apps/plan/memory.hpp"
#include "apps/plan/reads.hpp"
#include "apps/plan/replicas.hpp"
#include "apps/plan/room.hpp"
#include "apps/plan/traffic.hpp"
#include "apps/topologies/extension.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/data/preparation.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "runtime/schemes/schedules/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace troupe {
namespace {

constexpr int kTimelineColumns = 96;

std::string layers_of(const Chunk& chunk) {
  const std::string& first = chunk.layers().front()->name();
  const std::string& last = chunk.layers().back()->name();
  return first == last ? first : first + ".." + last;
}

std::string steps_text(std::int64_t behind, std::int64_t reach) {
  const std::string step = behind == 0 ? "W[b]" : concat("W[b-", behind, "]");
  return reach == 0 ? step : concat(step, reach > 0 ? " + " : " - ", reach > 0 ? reach : -reach);
}

/// " with chunks 0,2 | 1,3": what each stage has; "" where chunk c is with stage c mod K.
std::string placement_text(const Blueprint& b) {
  bool in_turn = b.experiment->pipeline().stage_of().empty() && b.schedule->apart.empty();
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    in_turn &= b.schedule->stage_of(c) == c % b.schedule->options.stages;
  }
  if (in_turn) {
    return "";
  }
  std::string text = " with chunks ";
  for (std::int32_t k = 0; k < b.schedule->options.stages; ++k) {
    std::string own;
    for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
      own += b.schedule->works_on(k, c) ? concat(own.empty() ? "" : ",", c) : "";
    }
    text += concat(k == 0 ? "" : " | ", own);
  }
  return text;
}

const PolicyScheme& policy_of(const Blueprint& b) {
  return **chosen_weights(b.experiment);  // a blueprint has one that is known
}

std::string scheme_text(const Blueprint& b) {
  const proto::Pipeline& pipeline = b.experiment->pipeline();
  const std::int32_t per_stage = b.schedule->options.chunks_per_stage;
  return fill_in("{}, weights {}, {}{}{}{}{}, {}{}",
                 b.schedule->options.name,
                 policy_of(b).info.name,
                 pipeline.stages(),
                 pipeline.stages() == 1 ? " stage" : " stages",
                 b.grid ? concat(" of ", pipeline.width(), " parts") : "",
                 per_stage > 1 ? concat(" of ", per_stage, " chunks") : "",
                 placement_text(b),
                 pipeline.micro_batches(),
                 pipeline.micro_batches() == 1 ? " micro-batch" : " micro-batches");
}

std::string length_text(const Blueprint& b) {
  std::string batch = concat("batch ", b.experiment->data().batch_size());
  for (const double at : b.experiment->data().growth().at()) {
    const std::int64_t first = b.sizes.batches(at * b.experiment->stop().epochs());
    batch += first < b.updates
                 ? concat(", ", b.sizes.size(first), " from update ", grouped(first), " on")
                 : "";
  }
  if (b.updates == 0) {
    return batch + ", until stop.seconds or stop.target_accuracy";
  }
  const double epochs = std::round(b.sizes.epochs(b.updates * b.batches_per_update) * 100) / 100;
  return concat(batch,
                ", ",
                grouped(b.updates),
                b.updates == 1 ? " update (" : " updates (",
                epochs,
                epochs == 1 ? " epoch)" : " epochs)");
}

std::string stages_table(const Blueprint& b) {
  std::vector<std::vector<std::string>> rows{{"stage",
                                              "chunk",
                                              "layers",
                                              "device",
                                              "parameters",
                                              "FLOPs/sample",
                                              "forward",
                                              "backward",
                                              "cut"}};
  for (const auto& chunk : b.chunks) {
    const auto at = static_cast<std::size_t>(chunk->index());
    const std::int32_t stage = b.schedule->stage_of(chunk->index());
    const std::int64_t sent = bytes_ahead(b, chunk->index());
    rows.push_back({concat("stage-", stages_text(*b.schedule, chunk->index())),
                    std::to_string(chunk->index()),
                    layers_of(*chunk),
                    to_string(b.devices[static_cast<std::size_t>(stage)]),
                    grouped(chunk->layout().parameters()),
                    short_number(chunk->flops().total()),
                    duration(b.times[at].forward),
                    duration(b.times[at].input_gradient + b.times[at].weight_gradient),
                    sent > 0 ? grouped(sent) + " B/sample" : ""});
  }
  return table(rows, "  ");
}

std::string memory_table(const Blueprint& b) {
  std::vector<std::vector<std::string>> rows{
      {"", "weights", "copies", "moments", "gradient", "activations", "stashes", "all"}};
  double all = 0;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const ChunkMemory m = memory_of(b, c);
    all += m.total();
    rows.push_back({concat("shard-", c),
                    mebibytes(m.weights),
                    std::to_string(m.copies),
                    mebibytes(m.moments),
                    mebibytes(m.gradient),
                    mebibytes(m.activations),
                    std::to_string(m.stashes),
                    mebibytes(m.total())});
  }
  rows.push_back({"all", "", "", "", "", "", "", mebibytes(all)});
  return table(rows, "  ");
}

std::string staleness_table(const Blueprint& b) {
  std::vector<std::vector<std::string>> rows{
      {"",
       "delay",
       "forward reads",
       "backward reads",
       b.link ? "lag left, of the server's updates" : "steps left"}};
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const ChunkReads r = reads_of(b, c);
    rows.push_back({concat("shard-", c),
                    std::to_string(b.schedule->delay[static_cast<std::size_t>(c)]),
                    steps_text(r.forward_behind, r.forward_reach),
                    r.stashed ? "the same" : steps_text(r.backward_behind, r.backward_reach),
                    concat(std::round(100 * r.left()) / 100)});
  }
  return table(rows, "  ");
}

bool tells_replicas(const Blueprint& b) {
  return b.experiment->replicas().count() > 1 || b.link || rate_factor(b.experiment) != 1;
}

std::string optimizer_text(const Blueprint& b) {
  const auto& info = chunk_optimizer(b, 0).scheme().info;
  const double rate = b.experiment->optimizer().learning_rate();
  const std::string text = fill_in("{}: {}; learning rate {}", info.name, info.summary, rate);
  if (!b.link || !exchange_of(b.experiment).ruled) {
    return text;
  }
  const RuleScheme& step = step_of(b.experiment->replicas());
  const bool replaced = step.step && !rules().built_in(step);
  return replaced ? fill_in(
                        "{}; not at the servers, where rule {} makes the step itself, whatever "
                        "optimizer.rule is",
                        text,
                        step.info.name)
                  : text;
}

std::string clipping_text(const Blueprint& b) {
  const double norm = clip_norm_of(b.experiment);
  const std::string whose =
      b.schedule->flushed ? "over all parameters, decided at shard-0 once a mini-batch"
      : b.grid            ? "by the parts of each chunk together: a norm over all would be a flush"
                          : "by each shard for itself: a norm over all would be a flush";
  return norm == 0 ? "none" : concat("to norm ", norm, " ", whose);
}

/// Where modules get their error signals; "" under backpropagation.
std::string decoupled_text(const Blueprint& b) {
  const DecoupledScheme* const method = decoupled_of(b.experiment);
  if (!method) {
    return "";
  }
  std::string text = fill_in("decoupled  {}: {}\n           locks that remain: {}\n",
                             method->info.name,
                             method->info.summary,
                             method->locks.empty() ? "it does not say" : method->locks);
  double parameters = 0;
  for (const auto* predictors : {&b.predictors, &b.input_predictors}) {
    for (const auto& predictor : *predictors) {
      parameters += static_cast<double>(predictor->layout().parameters());
    }
  }
  return b.predictors.empty()
             ? text
             : fill_in("{}           {} predictors, with {} parameters beside the memory above\n",
                       text,
                       b.predictors.size() + b.input_predictors.size(),
                       short_number(parameters));
}

/// The machines of one's own that join; "" where there are none.
std::string extension_text(const Blueprint& b) {
  const ExtensionScheme* const extension = extension_of(b.experiment);
  return extension
             ? concat("extension  ", extension->info.name, ": ", extension->info.summary, "\n")
             : "";
}

std::string timeline(const Blueprint& b) {
  const Schedule& schedule = *b.schedule;
  std::int64_t batches = schedule.flushed ? 2 : schedule.delay_max + 4;
  batches = b.batches > 0 ? std::min(batches, b.batches) : batches;
  const Timeline times = simulate(schedule, b.times, batches);
  std::string text = fill_in(
      "the first {}{}, one character = {}; digits: forwards (micro-batch modulo 10), letters:\n    "
      "       backwards (a = 0), = input gradient, - weight gradient, ! update, . idle; work that "
      "is shorter than a character may be covered\n",
      batches,
      batches == 1 ? " mini-batch" : " mini-batches",
      duration(times.end / kTimelineColumns));
  const std::vector<std::string> rows =
      draw(times, schedule.options.micro_batches, kTimelineColumns);
  for (std::size_t k = 0; k < rows.size(); ++k) {
    text += concat("  stage-", k, k < 10 && rows.size() > 10 ? "   " : "  ", rows[k], "\n");
  }
  return text;
}

/// What data of one's own is trained by, which nobody may have named.
std::string own_optimizer_text(const Blueprint& b) {
  const proto::Data& data = b.experiment->data();
  if (!data.has_csv() && !data.has_arrays() && !data.has_folder()) {
    return "";
  }
  const proto::Optimizer& optimizer = b.experiment->optimizer();
  return concat(
      "; ", proto::OptimizerRule::Kind_Name(optimizer.rule()), " at ", optimizer.learning_rate());
}

}  // namespace

std::string describe(const Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  const std::string& bubble = schedule_schemes().find(b.schedule->options.name)->bubble;
  const PolicyScheme& policy = policy_of(b);
  const Forecast p = forecast(b);
  const std::string rate =
      p.period > 0 ? fill_in("; at most {} samples/s{}",
                             short_number(static_cast<double>(e.data().batch_size()) / p.period),
                             e.replicas().count() > 1 ? " by each replica" : "")
                   : "";
  return fill_in(
      "plan       {}: {}\n           {}; {} parameters; products in {}\nlayers     what comes out "
      "of each, of one sample\n{}stages     times of a micro-batch as modelled (clock)\n{}memory   "
      "  of training, at most at once between updates; on top come evaluations, an update that "
      "cannot be\n           made in place, kernels' scratch, batches that wait for the first "
      "stage and the data set\n{}host       {}\n{}bubble     {}           modelled: {} idle once "
      "the pipe is full, {} over the run{}\nstaleness  {}: {}\n{}{}{}{}optimizer  {}\nclipping   "
      "{}\n{}{}timeline   {}",
      e.name(),
      scheme_text(b),
      length_text(b),
      grouped(b.network.parameters()),
      to_string(b.precision),
      layer_table(b),
      stages_table(b),
      memory_table(b),
      wrapped("of its memory the run takes at least " + memory_text(memory_parts(b)),
              90,
              "           "),
      memory_warning(b),
      b.schedule->signal_from != SignalFrom::next
          ? "as the timeline shows: not all locks are there\n"
      : bubble.empty() && e.pipeline().stage_of().empty() ? "as the timeline shows\n"
      : e.pipeline().stage_of().empty()
          ? concat(bubble, " (a mini-batch and stage, all stages alike)\n")
          : "as the timeline shows; delays are those of a pipe with a stage for each chunk\n",
      percent(p.idle_steady),
      percent(p.idle_run),
      rate,
      policy.info.name,
      policy.info.summary,
      staleness_table(b),
      (tells_replicas(b) ? replicas_text(b) + traffic_text(b) : "") + sent_text(b),
      copies_text(b.experiment),
      links_warning(b),
      optimizer_text(b),
      clipping_text(b),
      decoupled_text(b),
      extension_text(b),
      timeline(b));
}

std::string skipped_text(const Blueprint& b) {
  std::string names;
  const std::vector<WeightSpec> specs = weight_specs(b.network);
  for (std::size_t i = 0; i < b.start.size(); ++i) {
    if (b.start[i].empty() && specs[i].shape.elements() > 0) {
      names += (names.empty() ? "start  by seed, not from the file: " : ", ") + specs[i].name;
    }
  }
  return names.empty() ? "" : wrapped(names, 100, "       ") + '\n';
}

std::string warnings(const Blueprint& b) {
  const Preparation* const prepared = b.data ? b.data->preparation() : nullptr;
  std::vector<std::string> doubts = prepared ? prepared->doubts : std::vector<std::string>();
  doubts.push_back(one_row_doubt(b));
  const std::int64_t replicas = std::max<std::int64_t>(1, b.experiment->replicas().count());
  const std::int64_t mini_batches =  // of a replica
      b.updates * std::max<std::int64_t>(1, b.batches_per_update / replicas);
  if (b.link && mini_batches > 0 && b.link->push_every > mini_batches) {
    doubts.push_back(
        fill_in("the replicas exchange what they have learnt after {} mini-batches, and the run "
                "has {}, so {}: a shorter period of replicas.exchange, or a longer run",
                b.link->push_every,
                mini_batches,
                b.link->last > 0 ? "only at its end" : "never"));
  }
  std::string text;
  for (const std::string& doubt : doubts) {
    text += doubt.empty() ? "" : "warning    " + wrapped(doubt, 100, "           ") + '\n';
  }
  return text;
}

std::string data_told(const Blueprint& b, bool all) {
  const Preparation* const prepared = b.data ? b.data->preparation() : nullptr;
  std::string text;
  const auto add = [&](const char* heading, const std::string& sentence) {
    text += concat(heading, wrapped(sentence, 100, "           "), "\n");
  };
  for (const std::string& sentence : prepared ? prepared->understood : std::vector<std::string>()) {
    add(text.empty() ? "data       " : "           ", sentence);
    if (!all) {
      break;
    }
  }
  const std::int64_t left_over =
      b.data ? b.data->size(Split::train) % b.experiment->data().batch_size() : 0;
  if (all && !text.empty() && left_over > 0 && b.experiment->data().growth().at().empty()) {
    add("           ",
        concat("in each epoch ",
               left_over,
               " of the training samples, others each time, fill no mini-batch and are left out"));
  }
  return text + warnings(b);
}

std::string describe_briefly(const Blueprint& b) {
  std::string text = concat("plan   ",
                            b.experiment->name(),
                            ": ",
                            scheme_text(b),
                            "; ",
                            length_text(b),
                            own_optimizer_text(b),
                            "\n");
  std::string stages;
  for (const auto& chunk : b.chunks) {
    stages += fill_in(
        "{}{}: {} ({} on {})",
        stages.empty() ? "stages " : "; ",
        stages_text(*b.schedule, chunk->index()),
        layers_of(*chunk),
        short_number(static_cast<double>(chunk->layout().parameters())),
        to_string(b.devices[static_cast<std::size_t>(b.schedule->stage_of(chunk->index()))]));
  }
  text += wrapped(stages, 100, "       ") + '\n';
  return text + skipped_text(b) +
         (tells_replicas(b) ? replicas_text(b).substr(0, replicas_text(b).find('\n') + 1) : "") +
         memory_warning(b) + links_warning(b);
}

}  // namespace troupe
