// Language models.
#include "experiment/data.pb.h"
#include "experiment/model.pb.h"
#include "experiment/pipeline.pb.h"
#include "messages/sections.hpp"
#include "runtime/model/zoo/parts.hpp"

#include <cmath>

namespace troupe::zoo {

Result<void> check_lstm(const proto::Experiment& e) {
  const proto::Lstm& options = sections::model(e).lstm();
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
  if (!sections::data(e).text().contiguous()) {
    return refuse(
        "model.lstm.carry: a sample that does not go on where the one before has ended has no use "
        "for its state; set data.text.contiguous=true");
  }
  if (sections::replica_count(e) > 1) {
    return refuse(
        "model.lstm.carry: replicas take turns at the mini-batches of a stream; use "
        "replicas.count=1");
  }
  if (sections::pipeline(e).micro_batches() > 1) {
    return refuse(
        "model.lstm.carry: the state is that of a whole mini-batch; use "
        "pipeline.micro_batches=1");
  }
  if (sections::pipeline(e).activations() == proto::Pipeline::recompute) {
    return refuse(
        "model.lstm.carry: a forward that is made again would begin in a state that has gone on; "
        "use pipeline.activations=fifo");
  }
  return {};
}

Result<void> add_lstm(Network& network,
                      const proto::Lstm& options,
                      std::int64_t vocabulary,
                      std::int64_t rows) {
  TROUPE_TRY(needs_tokens(network, "lstm"));
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

namespace {

constexpr double kDeviation = 0.02;

/// Of the last matrices of branches: the residual stream's variance does not grow with its blocks (Radford et al. 2019).
double branch_deviation(std::int64_t layers) {
  return kDeviation / std::sqrt(2.0 * static_cast<double>(layers));
}

/// x becomes x + what `layers()` adds to the network, and makes of it.
template <class F>
void residual(Network& network, const std::string& name, F layers) {
  network.add(fork_layer(name + ".fork", name + ".skip"));
  layers();
  network.add(join_layer(name + ".join", name + ".skip", network.shape(), ActivationKind::none));
}

/// On each position; `how` has what it does not take from the network.
void add_dense(Network& network, const std::string& name, DenseOptions how) {
  how.positions = network.shape()[0];
  how.inputs = network.shape()[1];
  how.initial = Initial::normal;
  how.deviation = how.deviation > 0 ? how.deviation : kDeviation;
  network.add(dense_layer(name, how));
}

/// Error (usage) where `heads` do not divide the width, or `kv_heads` not them.
Result<void> check_heads(const std::string& model,
                         std::int64_t width,
                         std::int64_t heads,
                         std::int64_t kv_heads) {
  if (width % heads != 0) {
    return refused(concat(model, ".heads: ", heads, " does not divide ", model, ".width ", width));
  }
  if (kv_heads > 0 && heads % kv_heads != 0) {
    return refused(
        concat(model, ".kv_heads: ", kv_heads, " does not divide ", model, ".heads ", heads));
  }
  return {};
}

}  // namespace

Result<void> add_gpt(Network& network, const proto::Gpt& options, std::int64_t vocabulary) {
  TROUPE_TRY(needs_tokens(network, "gpt"));
  const std::int64_t length = network.input[0];
  const std::int64_t width = options.width();
  TROUPE_TRY(check_heads("gpt", width, options.heads(), 0));
  const double branch = branch_deviation(options.layers());
  const std::string table = "transformer.wte.weight";
  const auto drop = [&](const std::string& name) {
    if (options.dropout() > 0) {
      network.add(dropout_layer(name, network.shape(), options.dropout()));
    }
  };
  const AttentionOptions attention{.length = length, .width = width, .heads = options.heads()};
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
    residual(network, name + ".attn", [&] {
      network.add(layer_norm_layer(name + ".ln_1", network.shape()));
      add_dense(network,
                name + ".attn.c_attn",
                {.outputs = attention.columns(), .output_groups = attention.groups()});
      network.add(attention_layer(name + ".attn", attention));
      add_dense(network, name + ".attn.c_proj", {.outputs = width, .deviation = branch});
      drop(name + ".attn.resid_dropout");
    });
    residual(network, name + ".mlp", [&] {
      network.add(layer_norm_layer(name + ".ln_2", network.shape()));
      add_dense(
          network, name + ".mlp.c_fc", {.outputs = 4 * width, .activation = ActivationKind::gelu});
      add_dense(network, name + ".mlp.c_proj", {.outputs = width, .deviation = branch});
      drop(name + ".mlp.dropout");
    });
  }
  network.add(layer_norm_layer("transformer.ln_f", network.shape()));
  add_dense(network,
            "lm_head",
            {.outputs = vocabulary,
             .bias = false,
             .tied_weight = options.tied() ? table : "",
             .head = true});
  return {};
}

std::int64_t swiglu_width(std::int64_t hidden, std::int64_t width) {
  return hidden > 0 ? hidden : (8 * width + 95) / 96 * 32;
}

Result<void> add_llama(Network& network, const proto::Llama& options, std::int64_t vocabulary) {
  TROUPE_TRY(needs_tokens(network, "llama"));
  const std::int64_t length = network.input[0];
  const std::int64_t width = options.width();
  TROUPE_TRY(check_heads("llama", width, options.heads(), options.kv_heads()));
  if (width / options.heads() % 2 != 0) {
    return refused(concat("llama.heads: a head has ",
                          width / options.heads(),
                          " columns, and rotary positions turn pairs of them"));
  }
  if (options.experts() > 0 && options.chosen() > options.experts()) {
    return refused(concat(
        "llama.chosen: ", options.chosen(), " are more than llama.experts ", options.experts()));
  }
  const double branch = branch_deviation(options.layers());
  const std::int64_t hidden = swiglu_width(options.hidden(), width);
  const std::string table = "model.embed_tokens.weight";
  const auto norm = [&](const std::string& name) {
    network.add(rms_norm_layer(name, network.shape(), options.epsilon()));
  };
  const AttentionOptions attention{.length = length,
                                   .width = width,
                                   .heads = options.heads(),
                                   .kv_heads = options.kv_heads(),
                                   .rotary = options.theta()};
  network.add(embedding_layer("model.embed_tokens",
                              {.vocabulary = vocabulary,
                               .length = length,
                               .width = width,
                               .deviation = kDeviation,
                               .weight = table,
                               .tied = options.tied()}));
  for (std::int64_t i = 0; i < options.layers(); ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    residual(network, name + ".self_attn", [&] {
      norm(name + ".input_layernorm");
      add_dense(
          network,
          name + ".self_attn.qkv_proj",
          {.outputs = attention.columns(), .bias = false, .output_groups = attention.groups()});
      network.add(attention_layer(name + ".self_attn", attention));
      add_dense(network,
                name + ".self_attn.o_proj",
                {.outputs = width, .deviation = branch, .bias = false});
    });
    residual(network, name + ".mlp", [&] {
      norm(name + ".post_attention_layernorm");
      if (options.experts() > 0) {
        network.add(mixture_layer(name + ".block_sparse_moe",
                                  {.length = length,
                                   .width = width,
                                   .experts = options.experts(),
                                   .chosen = options.chosen(),
                                   .hidden = hidden,
                                   .capacity = options.capacity(),
                                   .balance = options.balance(),
                                   .initial = Initial::normal,
                                   .deviation = kDeviation,
                                   .of_outputs = branch}));
        return;
      }
      add_dense(network,
                name + ".mlp.gate_up_proj",
                {.outputs = 2 * hidden, .bias = false, .output_groups = {hidden, hidden}});
      network.add(gate_layer(name + ".mlp.act_fn", network.shape(), ActivationKind::silu));
      add_dense(
          network, name + ".mlp.down_proj", {.outputs = width, .deviation = branch, .bias = false});
    });
  }
  norm("model.norm");
  add_dense(network,
            "lm_head",
            {.outputs = vocabulary,
             .bias = false,
             .tied_weight = options.tied() ? table : "",
             .head = true});
  return {};
}

}  // namespace troupe::zoo
