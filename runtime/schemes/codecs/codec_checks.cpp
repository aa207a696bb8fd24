// What replicas.codec goes with, and what it does not.
#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "experiment/run.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"
#include "runtime/schemes/exchanges/replica_checks.hpp"

#include <algorithm>
#include <string>

namespace troupe {
namespace {

/// What an experiment has chosen, with the codecs. Expects codecs that have been registered.
struct Coded : replica_checks::Chosen {
  explicit Coded(const proto::Experiment& e)
      : Chosen(e),
        codecs(replicas.codec()),
        up(codec_scheme(codecs.up())),
        down(codec_scheme(codecs.down())) {}

  const std::string& up_name() const { return up.info.name; }

  const std::string& down_name() const { return down.info.name; }

  const proto::Codecs& codecs;
  const CodecScheme& up;
  const CodecScheme& down;
};

Result<void> check_known(const proto::Experiment& e) {
  const proto::Codecs& codecs = sections::replicas(e).codec();
  for (const auto& [key, chosen] : {std::pair{"replicas.codec.up", &codecs.up()},
                                    std::pair{"replicas.codec.down", &codecs.down()}}) {
    if (chosen->has_custom()) {
      TROUPE_TRY(troupe::codecs().chosen(chosen->custom(), key));
    }
    if (const auto& check = codec_scheme(*chosen).info.check) {
      TROUPE_TRY(check(e));
    }
  }
  return {};
}

// -- what a codec travels on

/// Why there is no link that a codec could be on; a sentence's end.
std::string no_link(const Coded& c) {
  if (!c.exchange.no_codec.empty()) {
    return c.exchange.no_codec;
  }
  switch (shared_by(c.experiment)) {
    case Shared::buffer:
      return "its replicas write to one buffer, and nothing travels";
    case Shared::own:
      return "its shards need whole vectors of their workers, and no codec is wired to them";
    case Shared::nothing:
    case Shared::servers:
      break;
  }
  if (reduction_of(c.experiment)) {
    return c.down.codec
               ? "an all-reduce (synchronous.reduction ring or tree) has no servers that answer; "
                 "use none"
               : "an all-reduce (synchronous.reduction ring or tree) adds up messages on the way, "
                 "and the sum of two of its messages is not a message; use fp16, bf16, "
                 "random_k or powersgd, or synchronous.reduction=server";
  }
  if (c.replicas.count() == 1) {
    return "one replica has no servers, and nothing travels";
  }
  return "its replicas have no servers, and what they send to one another goes through no codec";
}

Result<void> check_a_link(const Coded& c) {
  const bool served = has_servers(c.experiment) && c.exchange.no_codec.empty();
  const bool peers = has_coded_peers(c.experiment);
  const bool sums = reduction_of(c.experiment) && (!c.up.codec || c.up.adds_up());
  if (served || ((peers || sums) && !c.down.codec)) {
    return {};
  }
  if (peers) {
    return usage_error(
        "replicas.codec.down: {} is for what servers answer, and {} has none; use none",
        c.down_name(),
        c.exchange.info.name);
  }
  const bool of_up = c.up.codec && !(reduction_of(c.experiment) && c.down.codec);
  return usage_error("replicas.codec.{}: {} does not go with replicas.exchange {}: {}",
                     of_up ? "up" : "down",
                     of_up ? c.up_name() : c.down_name(),
                     c.exchange.info.name,
                     no_link(c));
}

Result<void> check_feedback(const Coded& c) {
  if (c.up.codec || c.codecs.feedback() == proto::Codecs::by_codec) {
    return {};
  }
  return usage_error(
      "replicas.codec.feedback: is about what messages leave out, and replicas.codec.up is none, "
      "which leaves nothing out; leave it by_codec");
}

/// What travels through `up`. Of peers: what their steps move. Of an all-reduce: gradients.
Link link_of(const Coded& c) {
  if (reduction_of(c.experiment)) {
    return {};
  }
  if (!has_coded_peers(c.experiment)) {
    return make_link({c.experiment, 0, 1});
  }
  Link link;
  link.travel = Travel::change;
  link.kind = LocalLink{};
  return link;
}

Result<void> check_travel(const Coded& c) {
  const Link link = link_of(c);
  if (c.up.codec && !c.up.whole && link.travel == Travel::weights) {
    return usage_error(
        "replicas.codec.up: {} makes sense of gradients and changes, and with replicas.exchange {} "
        "whole weights travel; use none, fp16, bf16 or int8_block, or an exchange whose "
        "replicas send changes (diloco, wsp)",
        c.up_name(),
        c.exchange.info.name);
  }
  const bool two = (link.local() && link.local()->before) || link.rebases();
  if (c.up.codec && two) {
    return usage_error(
        "replicas.codec.up: {} leaves something out, and {}'s order simultaneous moves a replica "
        "and the centre by its weights before a step: the centre would go by others than the "
        "replica; use replicas.exchange.{}.order=sequential",
        c.up_name(),
        c.exchange.info.name,
        c.exchange.info.name);
  }
  return {};
}

/// A message that is given up takes what it had taken out of the residual with it.
Result<void> check_memory(const Coded& c) {
  if (!c.up.codec || !remembers_messages(c.codecs)) {
    return {};
  }
  const auto missed = [&](const std::string& who, const std::string& right) {
    return usage_error(
        "replicas.codec.up: {} remembers what it has sent, and {} gives up pushes, which would be "
        "missing for good; use replicas.codec.feedback=off with a codec that has no memory "
        "of its own (fp16, bf16, int8_block, int4_block, e3m0, qsgd, terngrad, random_k), or {}",
        c.up_name(),
        who,
        right);
  };
  if (c.exchange.ruled && c.admission().gives_up) {
    return missed("replicas.admit " + c.admission().info.name, "another replicas.admit");
  }
  const std::string key = c.exchange.gives_up ? c.exchange.gives_up(c.experiment) : "";
  return key.empty() ? Result<void>() : missed(key, key + "=0");
}

// -- what the servers' step may be where a codec sends something else than the gradient

/// Why the servers' step is not w -= eta g and nothing else, so that nothing may come in g's place; "" where it is.
std::string more_than_linear(const Coded& c) {
  if (c.exchange.ruled && c.stepping().step) {
    return "the step " + c.step;
  }
  if (c.exchange.ruled && c.scaling().scale && !c.scaling().by_number) {
    return "replicas.scale " + c.scale;
  }
  const bool has_velocity =
      c.optimizer.method.kept() > 0 && sections::optimizer(c.experiment).momentum() != 0;
  return c.optimizer.plain && !has_velocity ? "" : "optimizer.rule " + c.optimizer.info.name;
}

Result<void> check_velocity(const Coded& c) {
  if (c.up.velocity && link_of(c).travel != Travel::gradient) {
    return usage_error(
        "replicas.codec.up: {} is a momentum of gradients, and what travels are changes or "
        "weights, which have one already; use replicas.exchange parameter_server or "
        "synchronous with a rule whose replicas push gradients, or top_k",
        c.up_name());
  }
  if (const std::string more = c.up.velocity ? more_than_linear(c) : ""; !more.empty()) {
    return usage_error(
        "replicas.codec.up: {} sends a velocity in the gradient's place, and {} needs the gradient "
        "itself; use optimizer.rule=sgd and a rule without a step and a correction of its "
        "own (asgd, softsync, staleness_aware, replicas.exchange synchronous), or top_k",
        c.up_name(),
        more);
  }
  if (c.up.velocity && !keeps_residual(c.codecs)) {
    return usage_error(
        "replicas.codec.feedback: off does not go with {}, which is nothing without the velocities "
        "that were not sent yet; leave it by_codec",
        c.up_name());
  }
  if (c.down.velocity) {
    return usage_error(
        "replicas.codec.down: {} is a momentum of gradients, and servers answer with weights; "
        "use top_k",
        c.down_name());
  }
  return {};
}

Result<void> check_votes(const Coded& c) {
  if (c.up.votes && link_of(c).travel != Travel::gradient) {
    return usage_error(
        "replicas.codec.up: {} is of gradients, and with replicas.exchange {} changes or weights "
        "travel; use replicas.exchange parameter_server or synchronous with a rule whose "
        "replicas push gradients, or one_bit",
        c.up_name(),
        c.exchange.info.name);
  }
  if (const std::string more = takes_votes(c.codecs) ? more_than_linear(c) : ""; !more.empty()) {
    return usage_error(
        "replicas.codec.up: {} leaves the servers a sign in the gradient's place, and {} needs the "
        "gradient itself; use optimizer.rule=sgd (momentum is the replicas', "
        "replicas.codec.up.sign_vote.momentum) and a rule without a step and a correction of its "
        "own (asgd, softsync, replicas.exchange synchronous), or replicas.codec.feedback=on",
        c.up_name(),
        more);
  }
  return {};
}

// -- what messages leave out

/// A sentence's end, of a codec that leaves out more than it codes.
constexpr const char* kGrows =
    " can leave out more than a message codes, which would grow from one message to the next; "
    "use a codec that leaves out less (qsgd with more levels than the root of its bucket, "
    "int4_block, top_k, one_bit)";

bool expands(const CodecScheme& scheme, const proto::Codec& chosen) {
  return scheme.expands && scheme.expands(chosen);
}

/// Where a message says how far the weights are from the copies that neighbours have.
Result<void> check_copies(const Coded& c) {
  if (!c.up.codec || !c.exchange.copies_at_peers || c.replicas.count() == 1) {
    return {};
  }
  const std::string graph =
      c.exchange.changing_neighbours ? c.exchange.changing_neighbours(c.experiment) : "";
  if (!graph.empty()) {
    return usage_error(
        "{} gives a replica other neighbours in each round, and the messages of replicas.codec.up "
        "{} count from those before; use ring, torus, exponential or complete",
        graph,
        c.up_name());
  }
  if (c.codecs.feedback() != proto::Codecs::by_codec) {
    return usage_error(
        "replicas.codec.feedback: with replicas.exchange {} a message says how far the weights are "
        "from what the neighbours have, so that the next one has what it leaves out; leave it "
        "by_codec",
        c.exchange.info.name);
  }
  if (expands(c.up, c.codecs.up())) {
    return usage_error(
        "replicas.codec.up: {}: differences of {}{}", c.up_name(), c.up_name(), kGrows);
  }
  return {};
}

Result<void> check_what_grows(const Coded& c) {
  if (keeps_residual(c.codecs) && expands(c.up, c.codecs.up())) {
    return usage_error("replicas.codec.feedback: on, and {}{}", c.up_name(), kGrows);
  }
  if (c.down.codec && !c.down.whole && expands(c.down, c.codecs.down())) {
    return usage_error(
        "replicas.codec.down: {}: differences of {}{}", c.down_name(), c.down_name(), kGrows);
  }
  return {};
}

// -- what goes down

/// Why servers have no one answer for all replicas, which a codec could say the difference of; "" where they have.
std::string answers_each(const Coded& c) {
  if (c.exchange.answers_each) {
    return c.exchange.info.name + "'s server";
  }
  return c.exchange.ruled && c.stepping().answers_each ? "the step " + c.step : "";
}

Result<void> check_down(const Coded& c) {
  if (!c.down.codec) {
    return {};
  }
  const Link link = link_of(c);
  if (link.travel == Travel::weights && !c.exchange.answers_each) {
    return usage_error(
        "replicas.codec.down: {}: replicas of {} send whole weights, so that what a message down "
        "has left out would be missing in them and lost; use none, or "
        "replicas.exchange=diloco with rate 1 and momentum 0, which is averaging and sends changes",
        c.down_name(),
        c.exchange.info.name);
  }
  if (const std::string who = answers_each(c); !who.empty()) {
    return usage_error(
        "replicas.codec.down: {} is of weights that all replicas have, and {} answers each with "
        "its own; use none",
        c.down_name(),
        who);
  }
  if (!c.down.whole && link.eager()) {
    return usage_error(
        "replicas.codec.down: {} sends what weights have moved since those that a replica asks "
        "with, and replicas.rule {} sends unasked; use none, fp16, bf16 or int8_block",
        c.down_name(),
        c.rule);
  }
  const auto& devices = sections::placement(c.experiment).devices();
  if (std::any_of(
          devices.begin(), devices.end(), [](const auto& device) { return device != "cpu"; })) {
    return usage_error(
        "replicas.codec.down: {} is decoded in host memory, and placement.devices has others; "
        "use none",
        c.down_name());
  }
  return {};
}

}  // namespace

Result<void> check_codecs(const proto::Experiment& experiment) {
  TROUPE_TRY(check_known(experiment));
  const Coded c(experiment);
  if (!c.up.codec && !c.down.codec) {
    return check_feedback(c);
  }
  return check_all({check_a_link,
                    check_feedback,
                    check_travel,
                    check_memory,
                    check_velocity,
                    check_votes,
                    check_copies,
                    check_what_grows,
                    check_down},
                   c);
}

}  // namespace troupe
