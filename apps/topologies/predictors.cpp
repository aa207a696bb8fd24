#include "apps/topologies/predictors.hpp"

#include "actors/exchange/alone.hpp"
#include "apps/topologies/hosts.hpp"
#include "experiment/decoupled.pb.h"
#include "experiment/optimizer.pb.h"
#include "experiment/run.pb.h"
#include "messages/sections.hpp"
#include "runtime/model/layers.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

constexpr const char* kCompared = "similarity";

void add_norm(Network& network, const std::string& name, std::size_t hidden) {
  network.add(
      batch_norm_layer(concat(name, ".norm", hidden + 1), network.shape(), ActivationKind::relu));
}

/// Hidden layers `first` and those behind it.
void add_hidden_layers(Network& network,
                       const std::string& name,
                       const PredictorPlan& plan,
                       std::size_t first = 0) {
  for (std::size_t i = first; i < plan.hidden.size(); ++i) {
    network.add(dense_layer(
        concat(name, ".dense", i + 1),
        {.inputs = network.shape().elements(), .outputs = plan.hidden[i], .bias = false}));
    add_norm(network, name, i);
  }
}

/// How many positions on a side of the image `from` one of the image `to` stands for. 0: the estimate of `to` is made by
/// dense layers, as the plan says, one of the two is no image, or they do not fit.
std::int64_t positions_for_one(const PredictorPlan& plan, const Shape& from, const Shape& to) {
  if (plan.kernel == 0 || from.dimensions() != 3 || to.dimensions() != 3) {
    return 0;
  }
  const std::int64_t ratio = from[0] / to[0];
  return ratio * to[0] == from[0] && ratio * to[1] == from[1] ? ratio : 0;
}

void add_convolution(Network& network, const std::string& name, ConvolutionLayerOptions options) {
  options.input = network.shape();
  options.geometry.stride = 1;
  options.geometry.padding = options.geometry.kernel / 2;  // the image keeps its size
  network.add(convolution_layer(name, options));
}

/// A convolutional one where the plan says so and both are images, else a dense one.
Network estimator(const std::string& name,
                  const PredictorPlan& plan,
                  const Shape& inputs,
                  const Shape& outputs,
                  Initial initial) {
  const std::int64_t window = positions_for_one(plan, inputs, outputs);
  Network network(window > 0 ? inputs : Shape{inputs.elements()});
  network.loss = Loss::squared_error;
  if (window == 0) {
    add_hidden_layers(network, name, plan);
    network.add(dense_layer(name + ".estimate",
                            {.inputs = network.shape().elements(),
                             .outputs = outputs.elements(),
                             .initial = initial,
                             .head = true}));
    return network;
  }
  if (window > 1) {
    network.add(
        average_pool_layer(name + ".pool", network.shape(), {.kernel = window, .stride = window}));
  }
  for (std::size_t i = 0; i < plan.hidden.size(); ++i) {
    add_convolution(network,
                    concat(name, ".conv", i + 1),
                    {.input = {},
                     .outputs = plan.hidden[i],
                     .geometry = {.kernel = plan.kernel},
                     .bias = false});
    add_norm(network, name, i);
  }
  add_convolution(network,
                  name + ".estimate",
                  {.input = {},
                   .outputs = outputs.back(),
                   .geometry = {.kernel = plan.kernel},
                   .initial = initial});
  return network;
}

/// A vocabulary's row for the token at a position in the place of a dense layer of the first hidden layer, or of the one
/// that there is: the dense layer of the token as one of so many labels.
Network estimator_of_tokens(const std::string& name,
                            const PredictorPlan& plan,
                            std::int64_t vocabulary,
                            std::int64_t outputs) {
  Network network(Shape{1});
  network.loss = Loss::squared_error;
  const bool hidden = !plan.hidden.empty();
  network.add(embedding_layer(name + (hidden ? ".tokens" : ".estimate"),
                              {.vocabulary = vocabulary,
                               .width = hidden ? plan.hidden.front() : outputs,
                               .deviation = 1 / std::sqrt(static_cast<double>(vocabulary))}));
  if (hidden) {
    add_norm(network, name, 0);
    add_hidden_layers(network, name, plan, 1);
    network.add(
        dense_layer(name + ".estimate",
                    {.inputs = network.shape().elements(), .outputs = outputs, .head = true}));
  }
  return network;
}

/// Of module `chunk`'s output, of a sample.
const Shape& output_shape(const Blueprint& b, std::size_t chunk) {
  return b.network.after[static_cast<std::size_t>(b.cut[chunk + 1] - 1)].front().shape;
}

/// Of what a predictor takes for a sample of module `chunk`'s output: of a text it is a position.
Shape row_shape(const Blueprint& b, std::size_t chunk) {
  const Shape& h = output_shape(b, chunk);
  return b.network.tokens ? Shape{h.back()} : h;
}

/// What the estimator of a module's error signals reads: the module's output, and the label.
Shape read_by_estimator(const Blueprint& b, const PredictorPlan& plan, std::size_t chunk) {
  const Shape h = row_shape(b, chunk);
  const std::int64_t classes = plan.conditioned ? b.data->classes() : 0;
  return plan.kernel > 0 && h.dimensions() == 3 ? Shape{h[0], h[1], h[2] + classes}
                                                : Shape{h.elements() + classes};
}

Network error_estimator(const Blueprint& b, const PredictorPlan& plan, std::size_t chunk) {
  return estimator(concat("predictor", chunk),
                   plan,
                   read_by_estimator(b, plan, chunk),
                   row_shape(b, chunk),
                   Initial::zero);
}

Network input_estimator(const Blueprint& b, const PredictorPlan& plan, std::size_t chunk) {
  const std::string name = concat("input_predictor", chunk);
  const Shape outputs = row_shape(b, chunk - 1);
  return b.network.tokens
             ? estimator_of_tokens(name, plan, b.data->classes(), outputs.elements())
             : estimator(name, plan, b.network.input, outputs, Initial::uniform_fan_in);
}

/// What a predictor's model reads, of a sample.
Shape read_by(const Blueprint& b, const PredictorPlan& plan, std::size_t chunk, bool of_input) {
  if (!of_input) {
    return plan.head ? row_shape(b, chunk) : read_by_estimator(b, plan, chunk);
  }
  const Shape& x = b.network.input;
  if (b.network.tokens) {
    return {1};
  }
  return positions_for_one(plan, x, row_shape(b, chunk - 1)) > 0 ? x : Shape{x.elements()};
}

/// What the similarity loss compares is a linear map of the output, which learns, too.
void add_projection(Network& network, const std::string& name) {
  const Shape& shape = network.shape();
  std::shared_ptr<const Layer> layer;
  if (shape.dimensions() == 3) {
    layer = convolution_layer(name + ".projection",
                              {.input = shape,
                               .outputs = shape.back(),
                               .geometry = {.kernel = 3, .stride = 1, .padding = 1},
                               .bias = false});
  } else {
    const std::int64_t width = shape.elements();
    layer = dense_layer(name + ".projection", {.inputs = width, .outputs = width, .bias = false});
  }
  network.add(fork_layer(name + ".fork", kCompared));
  network.add(on_skip(kCompared, std::move(layer)));
}

/// Averages an image of more than `positions` on a side to at most so many.
void add_pool(Network& network, const std::string& name, std::int64_t positions) {
  const Shape& shape = network.shape();
  if (positions == 0 || shape.dimensions() != 3 || std::max(shape[0], shape[1]) <= positions) {
    return;
  }
  const std::int64_t wanted = (std::max(shape[0], shape[1]) + positions - 1) / positions;
  const std::int64_t window = std::min({wanted, shape[0], shape[1]});
  network.add(average_pool_layer(name + ".pool", shape, {.kernel = window, .stride = window}));
}

/// A module's output -> the network's.
Network own_head(const Blueprint& b, const PredictorPlan& plan, std::size_t chunk) {
  const std::string name = concat("predictor", chunk);
  Network network(row_shape(b, chunk));
  network.loss = b.network.loss;
  network.label_smoothing = b.network.label_smoothing;
  if (plan.similarity > 0) {
    add_projection(network, name);
  }
  add_pool(network, name, plan.pool);
  add_hidden_layers(network, name, plan);
  network.add(dense_layer(
      name + ".head",
      {.inputs = network.shape().elements(),
       .outputs = b.network.tokens ? b.network.shape().back() : b.network.shape().elements(),
       .head = true}));
  if (plan.similarity > 0) {
    network.add(similarity_loss_layer(name + ".similarity",
                                      {.skip = kCompared,
                                       .features = network.entry(kCompared).elements(),
                                       .classes = b.data->classes(),
                                       .share = plan.similarity}));
  }
  return network;
}

}  // namespace

std::vector<std::shared_ptr<const Chunk>> predictor_chunks(const Blueprint& b) {
  std::vector<std::shared_ptr<const Chunk>> all;
  const auto plan = predictor_plan(b.experiment);
  for (std::size_t c = 0; plan && c + 1 < b.chunks.size(); ++c) {
    all.push_back(std::make_shared<const Chunk>(
        plan->head ? own_head(b, *plan, c) : error_estimator(b, *plan, c),
        std::vector<std::int64_t>{0},
        0,
        1,
        plan->head));
  }
  return all;
}

std::vector<std::shared_ptr<const Chunk>> input_predictor_chunks(const Blueprint& b) {
  std::vector<std::shared_ptr<const Chunk>> all;
  for (std::size_t c = 1; b.schedule->inputs_predicted && c < b.chunks.size(); ++c) {
    all.push_back(std::make_shared<const Chunk>(
        input_estimator(b, *predictor_plan(b.experiment), c), std::vector<std::int64_t>{0}, 0));
  }
  return all;
}

namespace {

/// Predictor::Config::learner.
std::optional<Ref<PredictorRole>> learner_of(const PredictorPlan& plan,
                                             const Roster& who,
                                             std::int32_t r,
                                             const Roster::PredictorSeat& seat) {
  if (!plan.at_estimate || !seat.of_input) {
    return {};
  }
  return predictors_of(who, r, false)[static_cast<std::size_t>(seat.chunk) - 1];
}

}  // namespace

PredictorMachines make_predictor(const Blueprint& b,
                                 const Roster& who,
                                 std::int32_t r,
                                 const Roster::PredictorSeat& seat,
                                 Stream& stream) {
  const proto::Experiment& e = b.experiment;
  const proto::Synthetic& options = sections::decoupled(e).synthetic();
  const PredictorPlan plan = *predictor_plan(e);
  const auto at = static_cast<std::size_t>(seat.chunk);
  const std::int32_t k = b.schedule->stage_of(seat.chunk);
  const std::shared_ptr<const Chunk>& model =
      seat.of_input ? b.input_predictors[at - 1] : b.predictors[at];
  const Rate rate(optimizer_of(b),
                  b.updates,
                  {},
                  rate_factor(e) * options.rate_factor(),
                  sections::resumed(e).updates());
  const ChunkOptimizer rule(e, rate, 0, 0);
  return {.predictor = std::make_unique<Predictor>(Predictor::Config{
              .self = seat.self,
              .replica = r,
              .chunk = seat.chunk,
              .stage = k,
              .seed = sections::seed(e),
              .micro_batches = b.schedule->options.micro_batches,
              .lambda = options.lambda(),
              .classes = plan.conditioned && !seat.of_input ? b.data->classes() : 0,
              .head = plan.head,
              .freshest = options.freshest(),
              .at_estimate = plan.at_estimate && !seat.of_input,
              .input = seat.of_input ? output_shape(b, at - 1) : Shape{},
              .model = model,
              .reads = read_by(b, plan, at, seat.of_input),
              .buffers = model->initial_buffers(stream),
              .module = who.stage_of_chunks(r, *b.schedule)[at],
              .shard = seat.shard,
              .learner = learner_of(plan, who, r, seat)}),
          .shard = std::make_unique<ParameterShard>(
              ParameterShard::Config{.self = seat.shard,
                                     .chunk = seat.chunk,
                                     .optimizer = seat.optimizer,
                                     .plan = {},
                                     .clip_with = {},
                                     .evaluation = {},
                                     .director = who.director(),
                                     .initial = model->initial_slices(stream, sections::seed(e)),
                                     .exchange = std::make_unique<Aside>(rule)}),
          .optimizer = std::make_unique<Optimizer>(Optimizer::Config{
              .replica = r, .stage = k, .rule = rule, .layout = model->layout()})};
}

std::int64_t input_buffer(const Blueprint& b) {
  const auto plan = predictor_plan(b.experiment);
  return plan ? plan->buffer : 0;
}

std::int32_t batches_ahead(const Blueprint& b) {
  const Schedule& schedule = *b.schedule;
  const std::int64_t asked = sections::decoupled(b.experiment).ahead();
  if (asked == 0 || (schedule.signal_from != SignalFrom::nobody &&
                     schedule.signal_from != SignalFrom::predictor)) {
    return 0;
  }
  if (input_buffer(b) > 0) {  // what a module has not taken makes room: no inbox grows
    return 0;
  }
  // A stage of several chunks begins with the later ones so many mini-batches after the first: with fewer it would
  // wait for one that its own last chunk holds back.
  const bool merged = schedule.chunks > schedule.options.stages && !schedule.flushed;
  return static_cast<std::int32_t>(std::max(asked, merged ? schedule.delay_max + 1 : 0));
}

std::vector<Ref<PredictorRole>> predictors_of(const Roster& who, std::int32_t r, bool of_input) {
  std::vector<Ref<PredictorRole>> all;
  for (const Roster::PredictorSeat& seat : who.predictors(r)) {
    if (seat.of_input == of_input) {
      all.push_back(seat.self);
    }
  }
  return all;
}

std::vector<Ref<LearnerRole>> label_readers(const Blueprint& b, const Roster& who, std::int32_t r) {
  const std::vector<Ref<StageRole>> stages = who.stage_of_chunks(r, *b.schedule);
  std::vector<Ref<LearnerRole>> all;
  if (b.schedule->signal_from == SignalFrom::nobody) {
    all.assign(stages.begin(), stages.end() - 1);
  } else if (const auto plan = predictor_plan(b.experiment);
             plan && (plan->conditioned || plan->head)) {
    const std::vector<Ref<PredictorRole>> heads = predictors_of(who, r, false);
    all.assign(heads.begin(), heads.end());
    if (plan->buffer > 0) {
      all = {stages.front()};
    }
  }
  return all;
}

}  // namespace troupe
