#include "runtime/schemes/decoupled/decoupled.hpp"

#include "experiment.pb.h"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/schemes/decoupled/built_in.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/policies/policy.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

constexpr const char* kKey = "decoupled";

using E = proto::Experiment;

Registry<DecoupledScheme>& table() {
  static Registry<DecoupledScheme> all(decoupled::built_in());
  return all;
}

/// Nothing: backpropagation.
Result<const DecoupledScheme*> chosen(const E& e) {
  if (e.decoupled().has_custom()) {
    return table().chosen(e.decoupled().custom(), kKey);
  }
  const std::string name = choice_name(e.decoupled());
  return name.empty() || name == "none" ? nullptr : table().find(name);
}

/// The chunk makes its error signal of what its forward has left.
bool makes_error(const E& e) {
  const SignalFrom from = decoupled_of(e)->from;
  return from == SignalFrom::head || from == SignalFrom::nobody;
}

/// A module has a loss of its own, with labels.
bool has_own_head(const E& e) {
  const auto plan = predictor_plan(e);
  return plan && plan->head;
}

/// Mini-batches of the buffer that a module draws its inputs from; 0: there is none.
std::int64_t draws_inputs(const E& e) {
  const auto plan = predictor_plan(e);
  return plan ? plan->buffer : 0;
}

Result<void> check_own(const E& e) {
  const SchemeInfo& info = decoupled_of(e)->info;
  return info.check ? info.check(e) : Result<void>();
}

bool on_cpu(const E& e) {
  const auto& devices = e.placement().devices();
  return std::ranges::all_of(devices, [](const std::string& name) { return name == "cpu"; });
}

/// (B, T, ...) -> (B T, ...).
Tensor positions_of(const Tensor& x) {
  return x ? x.reshape({x.elements() / x.shape().back(), x.shape().back()}) : x;
}

class AtEachPosition final : public ModuleSignal {
 public:
  explicit AtEachPosition(std::shared_ptr<const ModuleSignal> signal)
      : signal_(std::move(signal)) {}

  Weights backward(Weights read) const override { return signal_->backward(std::move(read)); }

  Tensor error(Stream& stream, const SignalInputs& in) const override {
    const SignalInputs at{
        .sent = positions_of(in.sent),
        .output = positions_of(in.output),
        .labels = in.labels ? in.labels.reshape({in.labels.elements()}) : Tensor(),
        .influence = positions_of(in.influence)};
    return signal_->error(stream, at).reshape(in.output.shape());
  }

 private:
  std::shared_ptr<const ModuleSignal> signal_;
};

// -- checks of an experiment that has chosen a method

Result<void> check_pipeline(const E& e) {
  const DecoupledScheme& method = *decoupled_of(e);
  const Shared shared = shared_by(e);
  if (!on_cpu(e)) {
    return usage_error("placement.devices: decoupled modules run on cpu only");
  }
  if (shared == Shared::own || shared == Shared::buffer || e.model().has_logistic()) {
    return usage_error(
        "decoupled: modules are stages of a pipeline with shards of their own; replicas.exchange "
        "sandblaster and hogwild have none, choose another");
  }
  if (makes_error(e) && e.pipeline().activations() != proto::Pipeline::fifo) {
    return usage_error(
        "pipeline.activations: {} makes error signals of what the forward has left; use fifo",
        method.info.name);
  }
  const SignalFrom from = signal_from(e);
  if (from != SignalFrom::next && from != SignalFrom::head && clip_norm_of(e) > 0) {
    return usage_error(
        "{}a norm over all modules is a wait for the last, and {} waits for none; use 0",
        e.optimizer().clip_norm() > 0 ? "optimizer.clip_norm: " : "replicas.codec.up: clip_norm, ",
        method.info.name);
  }
  if ((makes_error(e) || has_own_head(e)) && e.model().has_quadratic()) {
    return usage_error(
        "model: quadratic has neither labels nor an error at its output; choose decoupled=none or "
        "feedback_alignment");
  }
  return {};
}

/// Modules that draw their inputs from a buffer.
Result<void> check_input_buffer(const E& e) {
  if (draws_inputs(e) == 0) {
    return {};
  }
  if (e.pipeline().micro_batches() > 1) {
    return usage_error(
        "pipeline.micro_batches: {} parts of a mini-batch are not there together, and a module "
        "draws whole ones from its buffer; use 1",
        e.pipeline().micro_batches());
  }
  if (!updates_uncounted(e)) {
    return usage_error(
        "decoupled.greedy.buffer: a module that reuses inputs is at another mini-batch than the "
        "others, and replicas, servers and predictions count on one for all; use 0, or "
        "replicas.count=1 with pipeline.weights latest or stash");
  }
  if (e.record().angle_every() > 0) {
    return usage_error(
        "record.angle_every: with decoupled.greedy.buffer an update has no mini-batch whose "
        "gradient by backpropagation could be beside it; use 0");
  }
  if (e.model().lstm().carry()) {
    return usage_error(
        "model.lstm.carry: with decoupled.greedy.buffer a module's next sample need not be the one "
        "that follows in the text; use false");
  }
  return {};
}

}  // namespace

Result<void> register_decoupled(DecoupledScheme scheme) {
  if (scheme.influence && scheme.from != SignalFrom::head) {
    return usage_error(
        "register_decoupled: {} asks for influences, which go with the error at the head alone; "
        "use from = SignalFrom::head",
        scheme.info.name);
  }
  const bool predicted = scheme.from == SignalFrom::predictor;
  if (predicted ? !scheme.predictor : !scheme.module) {
    return usage_error("register_decoupled: {}{}",
                       scheme.info.name,
                       predicted ? " has no `predictor`, which estimates error signals"
                                 : " has no `module`, which makes a module's error signal");
  }
  return table().add(std::move(scheme), "register_decoupled");
}

const Registry<DecoupledScheme>& decoupled_schemes() {
  return table();
}

const DecoupledScheme* decoupled_of(const E& experiment) {
  const auto found = chosen(experiment);
  TROUPE_CHECK(found, found ? "" : found.error().message);
  return *found;
}

SignalFrom signal_from(const E& experiment) {
  const DecoupledScheme* const scheme = decoupled_of(experiment);
  // An estimate that is mixed with what the next module sends waits for that.
  return !scheme || experiment.decoupled().synthetic().lambda() > 0 ? SignalFrom::next
                                                                    : scheme->from;
}

std::optional<PredictorPlan> predictor_plan(const E& experiment) {
  const DecoupledScheme* const scheme = decoupled_of(experiment);
  if (!scheme || !scheme->predictor || experiment.decoupled().synthetic().lambda() == 1) {
    return {};
  }
  return scheme->predictor(experiment, decoupled_values(experiment));
}

bool updates_uncounted(const E& experiment) {
  return experiment.replicas().count() == 1 && !has_servers(experiment) &&
         (*chosen_weights(experiment))->uncounted;
}

OptionValues decoupled_values(const E& experiment) {
  const DecoupledScheme* const scheme = decoupled_of(experiment);
  return scheme ? OptionValues(scheme->info.options, experiment.decoupled().custom())
                : OptionValues();
}

std::shared_ptr<const ModuleSignal> by_position(std::shared_ptr<const ModuleSignal> signal) {
  return std::make_shared<AtEachPosition>(std::move(signal));
}

Tensor feedback_matrix(Stream& stream,
                       std::uint64_t seed,
                       std::string_view name,
                       std::int64_t rows,
                       std::int64_t columns) {
  const RandomStream random(seed, Purpose::weights, name_key(name.data(), name.size()));
  const double scale = 1 / std::sqrt(static_cast<double>(columns));
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(scale * (2 * random.uniform(i) - 1));
  }
  return from_host(stream, values, {rows, columns});
}

Result<void> check_decoupled(const E& experiment) {
  const auto known = chosen(experiment);
  TROUPE_TRY(known);
  if (!*known) {
    return {};
  }
  return check_all({check_own, check_pipeline, check_input_buffer}, experiment);
}

}  // namespace troupe
