#include "messages/other_names.hpp"

#include "kernels/sequences.hpp"
#include "messages/experiment/schema.hpp"

#include <algorithm>
#include <array>
#include <sstream>

namespace troupe {
namespace {

constexpr std::array kOtherNames{
    OtherName{"pipeline.schedule", "1f1b", "pipeline.schedule=one_f_one_b"},
    OtherName{"pipeline.schedule", "dapple", "pipeline.schedule=one_f_one_b"},
    OtherName{"pipeline.schedule", "pipedream_flush", "pipeline.schedule=one_f_one_b"},
    OtherName{"pipeline.schedule", "pipedream", "pipeline.schedule=async_one_f_one_b"},
    OtherName{"pipeline.schedule", "async_1f1b", "pipeline.schedule=async_one_f_one_b"},
    OtherName{"pipeline.schedule", "interleaved_1f1b", "pipeline.schedule=interleaved"},
    OtherName{"pipeline.schedule", "zero_bubble", "pipeline.schedule=zb_h1"},
    OtherName{"pipeline.schedule", "zb_h2", "pipeline.schedule=zb_2p"},
    OtherName{"pipeline.weights", "pipedream", "pipeline.weights=stash"},
    OtherName{"pipeline.weights", "weight_stashing", "pipeline.weights=stash"},
    OtherName{"pipeline.weights", "pipedream_2bw", "pipeline.weights=double_buffered"},
    OtherName{"pipeline.weights", "2bw", "pipeline.weights=double_buffered"},
    OtherName{"pipeline.weights", "paci", "pipeline.weights=accumulate"},
    OtherName{"pipeline.weights",
              "ddg",
              "pipeline.weights=stash",
              "decoupled delayed gradients (Huo et al. 2018, arXiv:1804.10574), which are "
              "pipeline.schedule=async_one_f_one_b with pipeline.weights=stash, bit for bit"},
    OtherName{"pipeline.activations",
              "features_replay",
              "pipeline.activations=recompute",
              "Huo et al. 2018, arXiv:1807.04511, which is pipeline.schedule=async_one_f_one_b "
              "with pipeline.weights=latest and pipeline.activations=recompute, bit for bit"},
    OtherName{"pipeline.activations", "gradient_checkpointing", "pipeline.activations=recompute"},
    OtherName{"decoupled", "dni", "decoupled=synthetic"},
    OtherName{"decoupled", "dfa", "decoupled=direct_feedback_alignment"},
    OtherName{"decoupled", "fa", "decoupled=feedback_alignment"},
    OtherName{"decoupled",
              "dgl",
              "decoupled=greedy",
              "decoupled.greedy with heads as deep as one asks for"},
    OtherName{"decoupled", "predsim", "decoupled.greedy.similarity=0.99"},
    OtherName{"replicas.exchange", "local_sgd", "replicas.exchange=averaging"},
    OtherName{"replicas.exchange", "fedavg", "replicas.exchange=averaging"},
    OtherName{"replicas.exchange", "d_psgd", "replicas.exchange=gossip"},
    OtherName{"replicas.exchange", "dpsgd", "replicas.exchange=gossip"},
    OtherName{"replicas.exchange", "osgp", "replicas.exchange=sgp"},
    OtherName{"replicas.exchange", "asgd", "replicas.exchange=parameter_server"},
    OtherName{"replicas.exchange", "async_sgd", "replicas.exchange=parameter_server"},
    OtherName{"replicas.exchange",
              "downpour",
              "replicas.exchange=parameter_server replicas.rule=adagrad"},
    OtherName{"replicas.exchange", "ddp", "replicas.exchange=synchronous"},
    OtherName{"replicas.exchange", "all_reduce", "replicas.exchange=synchronous"},
    OtherName{"replicas.exchange", "allreduce", "replicas.exchange=synchronous"},
    OtherName{"replicas.exchange", "l_bfgs", "replicas.exchange=sandblaster"},
    OtherName{"replicas.exchange",
              "eamsgd",
              "replicas.exchange=easgd",
              "easgd with momentum, optimizer.rule=nesterov (or momentum)"},
    OtherName{"replicas.codec.up", "topk", "replicas.codec.up=top_k"},
    OtherName{"replicas.codec.up", "randomk", "replicas.codec.up=random_k"},
    OtherName{"replicas.codec.up", "signsgd", "replicas.codec.up=sign_vote"},
    OtherName{"replicas.codec.up", "signum", "replicas.codec.up=sign_vote"},
    OtherName{"replicas.codec.up", "1bit_sgd", "replicas.codec.up=one_bit"},
    OtherName{"replicas.codec.up", "deep_gradient_compression", "replicas.codec.up=dgc"},
    OtherName{"optimizer.rule", "sgdm", "optimizer.rule=momentum"},
    OtherName{"optimizer.rule", "heavy_ball", "optimizer.rule=momentum"},
    OtherName{"optimizer.rule", "nag", "optimizer.rule=nesterov"},
    OtherName{"model", "resnet18", "model.resnet.depth=18"},
    OtherName{"model", "resnet20", "model.resnet.depth=20"},
    OtherName{"model", "resnet32", "model.resnet.depth=32"},
    OtherName{"model", "resnet50", "model.resnet.depth=50"},
    OtherName{"model", "resnet56", "model.resnet.depth=56"},
    OtherName{"model", "vgg11", "model.vgg.depth=11"},
    OtherName{"model", "vgg16", "model.vgg.depth=16"},
    OtherName{"model", "lenet", "model=lenet5"},
    OtherName{"model", "gpt2", "model=gpt"},
    OtherName{"model", "transformer", "model=gpt"},
    OtherName{"model", "mixtral", "model.llama.experts=8"},
    OtherName{"model", "logistic_regression", "model=linear"},
    OtherName{"data", "image_folder", "data=folder"},
    OtherName{"data", "imagefolder", "data=folder"},
    OtherName{"data", "images", "data=folder"},
    OtherName{"data", "npz", "data=arrays"},
    OtherName{"", "lr", "optimizer.learning_rate"},
    OtherName{"", "optimizer.lr", "optimizer.learning_rate"},
    OtherName{"", "optimizer.beta1", "optimizer.momentum"},
    OtherName{"", "start_from.skip", "start_from_skip"},
};

}  // namespace

std::string_view OtherName::scheme() const {
  const std::string_view first = stands_for.substr(0, stands_for.find(' '));
  if (first.substr(0, first.find('=')) == key) {
    return first.substr(key.size() + 1);
  }
  const std::string_view below = first.substr(std::min(first.size(), key.size() + 1));
  return below.substr(0, below.find('.'));
}

std::string plain_name(std::string_view name) {
  std::string out = schema::lower(schema::trimmed(name));
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::span<const OtherName> other_names() {
  return kOtherNames;
}

std::vector<std::string> meant_by(std::string_view assignment) {
  const std::size_t equals = std::min(assignment.find('='), assignment.size());
  const std::string_view path = schema::trimmed(assignment.substr(0, equals));
  const std::string_view value = assignment.substr(std::min(assignment.size(), equals + 1));
  for (const OtherName& other : kOtherNames) {
    if (other.key.empty() && plain_name(path) == other.name) {
      return {std::string(other.stands_for) + std::string(assignment.substr(equals))};
    }
    if (path == other.key && plain_name(value) == other.name) {
      std::istringstream words{std::string(other.stands_for)};
      std::vector<std::string> all;
      for (std::string word; words >> word;) {
        all.push_back(word);
      }
      return all;
    }
  }
  return {};
}

std::string taken_for(std::string_view assignment) {
  const std::vector<std::string> meant = meant_by(assignment);
  return meant.empty() ? "" : schema::legible(assignment) + " is taken for " + joined(meant, ", ");
}

}  // namespace troupe
