// What the servers' step may be where a codec sends something else than the gradient.
#include "experiment.pb.h"
#include "runtime/schemes/all_reduce.hpp"
#include "runtime/schemes/codec_checks.hpp"

#include <string>

namespace troupe::codec_checks {

/// Of peers: what their steps move. Of an all-reduce: gradients.
Link link_of(const Chosen& c) {
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

namespace {

/// The servers' step is w -= eta g and nothing else, so that a velocity may come in g's place.
bool linear_step(const Chosen& c) {
  const bool plain = c.optimizer.plain &&
                     (c.optimizer.info.name == "sgd" || c.experiment.optimizer().momentum() == 0);
  if (!c.exchange.ruled) {
    return plain;
  }
  return plain && !c.stepping().step && !c.scaling().corrects && c.scaling().info.name != "fasgd" &&
         (!c.scaling().scale || rules().built_in(c.scaling()));
}

std::string linear_step_wanted(const Chosen& c) {
  std::string what = concat("optimizer.rule ", c.optimizer.info.name);
  if (c.exchange.ruled && c.stepping().step) {
    what = concat("the step ", c.step);
  } else if (c.exchange.ruled && (c.scaling().corrects || c.scaling().info.name == "fasgd" ||
                                  !rules().built_in(c.scaling()))) {
    what = concat("replicas.scale ", c.scale);
  }
  return what;
}

}  // namespace

Rows velocity_rows() {
  return {
      {.name = "velocity_of_gradients",
       .keys = {"replicas.codec.up"},
       .holds =
           [](const Chosen& c) { return !up(c).velocity || link_of(c).travel == Travel::gradient; },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.up: ",
                           up(c).info.name,
                           " is a momentum of gradients, and what travels are changes or weights, "
                           "which have one already; right is replicas.exchange parameter_server or "
                           "synchronous with a rule whose replicas push gradients, or top_k");
           }},
      {.name = "velocity_at_one_end",
       .keys = {"replicas.codec.up"},
       .holds = [](const Chosen& c) { return !up(c).velocity || linear_step(c); },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.up: ",
                           up(c).info.name,
                           " sends a velocity in the gradient's place, and ",
                           linear_step_wanted(c),
                           " needs the gradient itself; right are optimizer.rule=sgd and a rule "
                           "without a step and a correction of its own (asgd, softsync, "
                           "staleness_aware, replicas.exchange synchronous), or top_k");
           }},
      {.name = "velocity_with_feedback",
       .keys = {"replicas.codec.feedback"},
       .holds = [](const Chosen& c) { return !up(c).velocity || keeps_residual(codecs_of(c)); },
       .says =
           [](const Chosen& c) {
             return concat(
                 "replicas.codec.feedback: off does not go with ",
                 up(c).info.name,
                 ", which is nothing without the velocities that were not sent yet; leave "
                 "it by_codec");
           }},
      {.name = "velocity_goes_up",
       .keys = {"replicas.codec.down"},
       .holds = [](const Chosen& c) { return !down(c).velocity; },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.down: ",
                           down(c).info.name,
                           " is a momentum of gradients, and servers answer with weights; right is "
                           "top_k");
           }},
  };
}

Rows vote_rows() {
  return {
      {.name = "votes_about_gradients",
       .keys = {"replicas.codec.up"},
       .holds =
           [](const Chosen& c) { return !up(c).votes || link_of(c).travel == Travel::gradient; },
       .says =
           [](const Chosen& c) {
             return concat(
                 "replicas.codec.up: ",
                 up(c).info.name,
                 " is of gradients, and with replicas.exchange ",
                 c.exchange.info.name,
                 " changes or weights travel; right is replicas.exchange parameter_server or "
                 "synchronous with a rule whose replicas push gradients, or one_bit");
           }},
      {.name = "steps_by_votes",
       .keys = {"replicas.codec.up"},
       .holds = [](const Chosen& c) { return !takes_votes(codecs_of(c)) || linear_step(c); },
       .says =
           [](const Chosen& c) {
             return concat(
                 "replicas.codec.up: ",
                 up(c).info.name,
                 " leaves the servers a sign in the gradient's place, and ",
                 linear_step_wanted(c),
                 " needs the gradient itself; right are optimizer.rule=sgd (momentum is the "
                 "replicas', replicas.codec.up.sign_vote.momentum) and a rule without a step and a "
                 "correction of its own (asgd, softsync, replicas.exchange synchronous), or "
                 "replicas.codec.feedback=on");
           }},
  };
}

namespace {

/// Whether the codec's messages say how far weights are from the copies that others have.
bool gossips(const Chosen& c) {
  return up(c).codec && c.exchange.info.name == "gossip" && c.replicas.count() > 1;
}

/// Who hears a replica's messages hears all of them.
bool is_fixed(proto::Gossip::Graph graph) {
  return graph != proto::Gossip::one_peer && graph != proto::Gossip::rotating &&
         graph != proto::Gossip::groups;
}

}  // namespace

Rows gossip_rows() {
  return {
      {.name = "codec_on_a_fixed_graph",
       .keys = {"replicas.exchange.gossip.graph"},
       .holds =
           [](const Chosen& c) {
             return !gossips(c) || is_fixed(c.replicas.exchange().gossip().graph());
           },
       .says =
           [](const Chosen& c) {
             return concat("replicas.exchange.gossip.graph: ",
                           proto::Gossip::Graph_Name(c.replicas.exchange().gossip().graph()),
                           " gives a replica other neighbours in each round, and the messages of "
                           "replicas.codec.up ",
                           up(c).info.name,
                           " count from those before; right are ring, torus, exponential and "
                           "complete");
           }},
      {.name = "feedback_of_copies",
       .keys = {"replicas.codec.feedback"},
       .holds =
           [](const Chosen& c) {
             return !gossips(c) || codecs_of(c).feedback() == proto::Codecs::by_codec;
           },
       .says = always("replicas.codec.feedback: with replicas.exchange gossip a message says how "
                      "far the weights are from what the neighbours have, so that the next one "
                      "has what it leaves out; leave it by_codec")},
      {.name = "differences_of_peers_that_grow",
       .keys = {"replicas.codec.up"},
       .holds =
           [](const Chosen& c) {
             return !gossips(c) || !up(c).expands || !up(c).expands(codecs_of(c).up());
           },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.up: ", up(c).info.name, ": differences") +
                    grows(up(c).info.name);
           }},
  };
}

}  // namespace troupe::codec_checks
