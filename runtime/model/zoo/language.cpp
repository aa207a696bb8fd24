// Language models.
#include "experiment.pb.h"
#include "runtime/model/zoo/parts.hpp"

#include <cmath>
#include <utility>
#include <vector>

namespace troupe::zoo {

Result<void> check_lstm(const proto::Experiment& e) {
  const proto::Lstm& options = e.model().lstm();
  const auto refuse = [](const char* why) {
    return Error{ErrorKind::usage, why};
  };
  if (options.future() > 0 && !options.carry()) {
    return refuse(
        "model.lstm.future: what it estimates comes from the next sample of a stream; set "
        "model.lstm.carry=true");
  }
  if (!options.carry()) {
    return {};
  }
  if (!e.data().text().contiguous()) {
    return refuse(
        "model.lstm.carry: a sample that does not go on where the one before has ended has no use "
        "for its state; "
        "set data.text.contiguous=true");
  }
  if (e.replicas().count() > 1) {
    return refuse(
        "model.lstm.carry: replicas take turns at the mini-batches of a stream; right is "
        "replicas.count=1");
  }
  if (e.pipeline().micro_batches() > 1) {
    return refuse(
        "model.lstm.carry: the state is that of a whole mini-batch; right is "
        "pipeline.micro_batches=1");
  }
  if (e.pipeline().activations() == proto::Pipeline::recompute) {
    return refuse(
        "model.lstm.carry: a forward that is made again would begin in a state that has gone on; "
        "right is "
        "pipeline.activations=fifo");
  }
  return {};
}

Result<void> add_lstm(Network& network,
                      const proto::Lstm& options,
                      std::int64_t vocabulary,
                      std::int64_t rows) {
  if (auto fits = needs_tokens(network, "lstm"); !fits) {
    return fits;
  }
  const std::int64_t length = network.input[0];
  const std::int64_t width = options.width();
  const auto drop = [&](const std::string& name) {
    if (options.dropout() > 0) {
      network.add(dropout_layer(name, network.shape(), options.dropout()));
    }
  };
  network.add(
      embedding_layer("encoder", {.vocabulary = vocabulary, .length = length, .width = width}));
  drop("encoder.dropout");
  for (std::int64_t i = 0; i < options.layers(); ++i) {
    const std::string name = "rnn." + std::to_string(i);
    if (options.residual()) {
      network.add(fork_layer(name + ".fork", name + ".skip"));
    }
    network.add(lstm_layer(name,
                           {.length = length,
                            .inputs = width,
                            .width = width,
                            .rows = options.carry() ? rows : 0,
                            .future = options.future()}));
    if (options.residual()) {
      network.add(
          join_layer(name + ".join", name + ".skip", network.shape(), ActivationKind::none));
    }
    drop(name + ".dropout");
  }
  network.add(dense_layer(
      "decoder", {.inputs = width, .outputs = vocabulary, .positions = length, .head = true}));
  return {};
}

Result<void> add_gpt(Network& network, const proto::Gpt& options, std::int64_t vocabulary) {
  if (auto fits = needs_tokens(network, "gpt"); !fits) {
    return fits;
  }
  const std::int64_t length = network.input[0];
  const std::int64_t width = options.width();
  if (width % options.heads() != 0) {
    return refused(concat("gpt.heads: ", options.heads(), " does not divide gpt.width ", width));
  }
  constexpr double kDeviation = 0.02;
  const double branch = kDeviation / std::sqrt(2.0 * static_cast<double>(options.layers()));
  const std::string table = "transformer.wte.weight";
  const auto drop = [&](const std::string& name) {
    if (options.dropout() > 0) {
      network.add(dropout_layer(name, network.shape(), options.dropout()));
    }
  };
  const auto dense = [&](const std::string& name,
                         std::int64_t inputs,
                         std::int64_t outputs,
                         double deviation,
                         ActivationKind activation,
                         std::vector<std::int64_t> groups = {}) {
    network.add(dense_layer(name,
                            {.inputs = inputs,
                             .outputs = outputs,
                             .activation = activation,
                             .initial = Initial::normal,
                             .deviation = deviation,
                             .positions = length,
                             .output_groups = std::move(groups)}));
  };
  network.add(embedding_layer("transformer.wte",
                              {.vocabulary = vocabulary,
                               .length = length,
                               .width = width,
                               .positions = true,
                               .deviation = kDeviation,
                               .weight = table,
                               .position_weight = "transformer.wpe.weight",
                               .tied = options.tied()}));
  drop("transformer.drop");
  for (std::int64_t i = 0; i < options.layers(); ++i) {
    const std::string name = "transformer.h." + std::to_string(i);
    network.add(fork_layer(name + ".attn.fork", name + ".attn.skip"));
    network.add(layer_norm_layer(name + ".ln_1", network.shape()));
    dense(name + ".attn.c_attn",
          width,
          3 * width,
          kDeviation,
          ActivationKind::none,
          {width, width, width});
    network.add(attention_layer(name + ".attn", length, width, options.heads()));
    dense(name + ".attn.c_proj", width, width, branch, ActivationKind::none);
    drop(name + ".attn.resid_dropout");
    network.add(join_layer(
        name + ".attn.join", name + ".attn.skip", network.shape(), ActivationKind::none));
    network.add(fork_layer(name + ".mlp.fork", name + ".mlp.skip"));
    network.add(layer_norm_layer(name + ".ln_2", network.shape()));
    dense(name + ".mlp.c_fc", width, 4 * width, kDeviation, ActivationKind::gelu);
    dense(name + ".mlp.c_proj", 4 * width, width, branch, ActivationKind::none);
    drop(name + ".mlp.dropout");
    network.add(
        join_layer(name + ".mlp.join", name + ".mlp.skip", network.shape(), ActivationKind::none));
  }
  network.add(layer_norm_layer("transformer.ln_f", network.shape()));
  network.add(dense_layer("lm_head",
                          {.inputs = width,
                           .outputs = vocabulary,
                           .initial = Initial::normal,
                           .deviation = kDeviation,
                           .positions = length,
                           .bias = false,
                           .tied_weight = options.tied() ? table : "",
                           .head = true}));
  return {};
}

}  // namespace troupe::zoo
