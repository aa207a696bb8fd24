#include "runtime/schemes/decoupled.hpp"

#include "experiment.pb.h"
#include "kernels/random.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/codec.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/schemes/decoupled/built_in.hpp"
#include "runtime/schemes/exchange.hpp"
#include "runtime/schemes/schedule_scheme.hpp"

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
  return std::all_of(
      devices.begin(), devices.end(), [](const std::string& name) { return name == "cpu"; });
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

/// Of an experiment that has chosen a method.
const Constraints<E>& rows() {
  static const Constraints<E> all{
      asked("decoupled_method", {"decoupled"}, check_own),
      {.name = "decoupled_on_cpu",
       .keys = {"placement.devices"},
       .holds = on_cpu,
       .says = always("placement.devices: decoupled modules run on cpu only")},
      {.name = "decoupled_pipeline",
       .keys = {"decoupled"},
       .holds =
           [](const E& e) {
             const Shared shared = shared_by(e);
             return shared != Shared::own && shared != Shared::buffer && !e.model().has_logistic();
           },
       .says = always("decoupled: modules are stages of a pipeline with shards of their own; "
                      "replicas.exchange sandblaster and hogwild have none, choose another")},
      {.name = "decoupled_outputs_kept",
       .keys = {"pipeline.activations"},
       .holds =
           [](const E& e) {
             return !makes_error(e) || e.pipeline().activations() == proto::Pipeline::fifo;
           },
       .says =
           [](const E& e) {
             return concat("pipeline.activations: ",
                           decoupled_of(e)->info.name,
                           " makes error signals of what the forward has left; right is fifo");
           }},
      {.name = "decoupled_clipping",
       .keys = {"optimizer.clip_norm", "replicas.codec.up"},
       .holds =
           [](const E& e) {
             const SignalFrom from = signal_from(e);
             return from == SignalFrom::next || from == SignalFrom::head || clip_norm_of(e) == 0;
           },
       .says =
           [](const E& e) {
             return concat(e.optimizer().clip_norm() > 0 ? "optimizer.clip_norm: "
                                                         : "replicas.codec.up: clip_norm, ",
                           "a norm over all modules is a wait for the last, and ",
                           decoupled_of(e)->info.name,
                           " waits for none; right is 0");
           }},
      {.name = "decoupled_loss",
       .keys = {"model"},
       .holds =
           [](const E& e) {
             return !(makes_error(e) || has_own_head(e)) || !e.model().has_quadratic();
           },
       .says = always("model: quadratic has neither labels nor an error at its output; choose "
                      "decoupled=none or feedback_alignment")},
      {.name = "decoupled_unlocked",
       .keys = {"decoupled.synthetic.unlocked"},
       .holds =
           [](const E& e) {
             const proto::Synthetic& options = e.decoupled().synthetic();
             return !options.unlocked() || options.lambda() == 0;
           },
       .says =
           always("decoupled.synthetic.unlocked: true, and decoupled.synthetic.lambda above 0 is a "
                  "wait for the next module; right is lambda=0, or unlocked=false")},
      {.name = "decoupled_trains_on",
       .keys = {"decoupled.synthetic.trains_on"},
       .holds =
           [](const E& e) {
             const proto::Synthetic& options = e.decoupled().synthetic();
             return options.trains_on() == proto::Synthetic::input || options.unlocked();
           },
       .says = always("decoupled.synthetic.trains_on: estimate is an estimated input, and with "
                      "decoupled.synthetic.unlocked=false modules work on the inputs that they are "
                      "sent; right is input, or unlocked=true")},
      {.name = "decoupled_unlocked_flush",
       .keys = {"pipeline.schedule"},
       .holds =
           [](const E& e) {
             const auto schedule = chosen_schedule(e);
             return !e.decoupled().synthetic().unlocked() || !schedule || !(*schedule)->flushed ||
                    e.pipeline().schedule().has_sequential();
           },
       .says =
           [](const E& e) {
             return concat(
                 "pipeline.schedule: ",
                 (*chosen_schedule(e))->info.name,
                 " fills a pipe and flushes it at each update, and with "
                 "decoupled.synthetic.unlocked there is none to fill: no module waits for "
                 "another; right is sequential, in which each stage goes its own way, or "
                 "a schedule that is not flushed");
           }},
      {.name = "decoupled_buffer_parts",
       .keys = {"pipeline.micro_batches"},
       .holds =
           [](const E& e) { return draws_inputs(e) == 0 || e.pipeline().micro_batches() == 1; },
       .says =
           [](const E& e) {
             return concat("pipeline.micro_batches: ",
                           e.pipeline().micro_batches(),
                           " parts of a mini-batch are not there together, and a module draws "
                           "whole ones from its buffer; right is 1");
           }},
      {.name = "decoupled_buffer_alone",
       .keys = {"decoupled.greedy.buffer"},
       .holds =
           [](const E& e) {
             const auto& weights = e.pipeline().weights();
             return draws_inputs(e) == 0 || (e.replicas().count() == 1 && !has_servers(e) &&
                                             (weights.has_latest() || weights.has_stash()));
           },
       .says = always("decoupled.greedy.buffer: a module that reuses inputs is at another "
                      "mini-batch than the others, and replicas, servers and predictions count on "
                      "one for all; right is 0, or replicas.count=1 with pipeline.weights latest "
                      "or stash")},
      {.name = "decoupled_buffer_angle",
       .keys = {"record.angle_every"},
       .holds = [](const E& e) { return draws_inputs(e) == 0 || e.record().angle_every() == 0; },
       .says = always("record.angle_every: with decoupled.greedy.buffer an update has no "
                      "mini-batch whose gradient by backpropagation could be beside it; right is "
                      "0")},
      {.name = "decoupled_buffer_carry",
       .keys = {"model.lstm.carry"},
       .holds = [](const E& e) { return draws_inputs(e) == 0 || !e.model().lstm().carry(); },
       .says = always("model.lstm.carry: with decoupled.greedy.buffer a module's next sample need "
                      "not be the one that follows in the text; right is false")},
      {.name = "decoupled_update_probability",
       .keys = {"decoupled.synthetic.update_probability"},
       .holds =
           [](const E& e) {
             const auto& weights = e.pipeline().weights();
             return e.decoupled().synthetic().update_probability() == 1 ||
                    !e.decoupled().has_synthetic() ||
                    (e.replicas().count() == 1 && !has_servers(e) &&
                     (weights.has_latest() || weights.has_stash()));
           },
       .says = always("decoupled.synthetic.update_probability: an update that is left out is none "
                      "for servers, other replicas and predictions either; right is 1, or "
                      "replicas.count=1 with pipeline.weights latest or stash")},
  };
  return all;
}

}  // namespace

Result<void> register_decoupled(DecoupledScheme scheme) {
  if (scheme.influence && scheme.from != SignalFrom::head) {
    return Error{ErrorKind::usage,
                 concat("register_decoupled: ",
                        scheme.info.name,
                        " asks for influences, which go with the error at the head alone; right is "
                        "from = SignalFrom::head")};
  }
  const bool predicted = scheme.from == SignalFrom::predictor;
  if (predicted ? !scheme.predictor : !scheme.module) {
    return Error{ErrorKind::usage,
                 concat("register_decoupled: ",
                        scheme.info.name,
                        predicted ? " has no `predictor`, which estimates error signals"
                                  : " has no `module`, which makes a module's error signal")};
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
  if (!known) {
    return known.error();
  }
  return *known ? check_rows(rows(), experiment) : Result<void>();
}

}  // namespace troupe
