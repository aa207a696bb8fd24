// What replicas.codec goes with, and what it does not.
#include "runtime/schemes/codec_checks.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/all_reduce.hpp"
#include "runtime/schemes/codec.hpp"
#include "runtime/schemes/replica_checks.hpp"

#include <algorithm>
#include <string>

namespace troupe::codec_checks {

std::string grows(const std::string& name) {
  return concat(
      " of ",
      name,
      " can leave out more than a message codes, which would grow from one message to the "
      "next; right is a codec that leaves out less (qsgd with more levels than the root of "
      "its bucket, int4_block, top_k, one_bit)");
}

namespace {

bool any(const Chosen& c) {
  return up(c).codec || down(c).codec;
}

/// "replicas.codec.up: top_k", of the direction that has one.
std::string said(const Chosen& c) {
  return up(c).codec ? concat("replicas.codec.up: ", up(c).info.name)
                     : concat("replicas.codec.down: ", down(c).info.name);
}

Result<void> check_known(const Chosen& c) {
  struct Direction {
    const char* key;
    const proto::Codec& chosen;
  };

  for (const auto& [key, chosen] : {Direction{"replicas.codec.up", codecs_of(c).up()},
                                    Direction{"replicas.codec.down", codecs_of(c).down()}}) {
    if (chosen.has_custom()) {
      if (const auto known = codecs().chosen(chosen.custom(), key); !known) {
        return known.error();
      }
    }
    const CodecScheme& scheme = codec_scheme(chosen);
    if (scheme.info.check) {
      if (auto fits = scheme.info.check(c.experiment); !fits) {
        return fits;
      }
    }
  }
  return {};
}

/// Why there is no link that a codec could be on; a sentence's end.
std::string no_link(const Chosen& c) {
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
    return down(c).codec
               ? "an all-reduce (synchronous.reduction ring or tree) has no servers that answer; "
                 "right is none"
               : "an all-reduce (synchronous.reduction ring or tree) adds up messages on the way, "
                 "and a sum of "
                 "its messages is none of them; right are fp16, bf16, random_k and powersgd, or "
                 "synchronous.reduction=server";
  }
  if (c.replicas.count() == 1) {
    return "one replica has no servers, and nothing travels";
  }
  return "its replicas have no servers, and what they send to one another goes through no codec";
}

Rows link_rows() {
  return {
      asked("codecs", {"replicas.codec"}, check_known),
      {.name = "codec_on_a_link",
       .keys = {"replicas.codec"},
       .holds =
           [](const Chosen& c) {
             const bool sums = reduction_of(c.experiment) && (!up(c).codec || up(c).adds_up());
             const bool served = has_servers(c.experiment) && c.exchange.no_codec.empty();
             return !any(c) || served ||
                    ((has_coded_peers(c.experiment) || sums) && !down(c).codec);
           },
       .says =
           [](const Chosen& c) {
             if (has_coded_peers(c.experiment)) {
               return concat("replicas.codec.down: ",
                             down(c).info.name,
                             " is for what servers answer, and ",
                             c.exchange.info.name,
                             " has none; right is none");
             }
             return concat(reduction_of(c.experiment) && down(c).codec
                               ? concat("replicas.codec.down: ", down(c).info.name)
                               : said(c),
                           " does not go with replicas.exchange ",
                           c.exchange.info.name,
                           ": ",
                           no_link(c));
           }},
      {.name = "feedback_of_a_codec",
       .keys = {"replicas.codec.feedback"},
       .holds =
           [](const Chosen& c) {
             return codecs_of(c).feedback() == proto::Codecs::by_codec || up(c).codec;
           },
       .says = always("replicas.codec.feedback: is about what messages leave out, and "
                      "replicas.codec.up is none, which leaves nothing out; leave it by_codec")},
      {.name = "codec_of_weights",
       .keys = {"replicas.codec.up"},
       .holds =
           [](const Chosen& c) {
             return !up(c).codec || up(c).whole || link_of(c).travel != Travel::weights;
           },
       .says =
           [](const Chosen& c) {
             return concat(
                 "replicas.codec.up: ",
                 up(c).info.name,
                 " makes sense of gradients and changes, and with replicas.exchange ",
                 c.exchange.info.name,
                 " whole weights travel; right are none, fp16, bf16 and int8_block, or an "
                 "exchange whose replicas send changes (diloco, wsp)");
           }},
      {.name = "codec_of_two_weights",
       .keys = {"replicas.codec.up"},
       .holds =
           [](const Chosen& c) {
             const Link link = link_of(c);
             return !up(c).codec || (!(link.local() && link.local()->before) && !link.rebases());
           },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.up: ",
                           up(c).info.name,
                           " leaves something out, and easgd's order simultaneous moves a replica "
                           "and the centre by its weights before a step: the centre would go by "
                           "others than the replica; right is "
                           "replicas.exchange.easgd.order=sequential");
           }},
  };
}

/// A message that is given up takes what it had taken out of the residual with it.
bool misses_messages(const Chosen& c) {
  return up(c).codec && remembers_messages(codecs_of(c));
}

std::string missed(const Chosen& c, const std::string& who) {
  return concat("replicas.codec.up: ",
                up(c).info.name,
                " remembers what it has sent, and ",
                who,
                " gives up pushes, which would be missing for good; right are "
                "replicas.codec.feedback=off with a codec that has no memory of its own (fp16, "
                "bf16, int8_block, int4_block, e3m0, qsgd, terngrad, random_k), or ");
}

Rows memory_rows() {
  return {
      {.name = "residuals_of_dropped_gradients",
       .keys = {"replicas.codec.up"},
       .holds =
           [](const Chosen& c) {
             return !misses_messages(c) || !c.exchange.ruled ||
                    c.admission().info.name != "ringmaster";
           },
       .says =
           [](const Chosen& c) {
             return missed(c, "replicas.admit ringmaster") + "another replicas.admit";
           }},
      {.name = "residuals_of_backup_replicas",
       .keys = {"replicas.codec.up"},
       .holds =
           [](const Chosen& c) {
             return !misses_messages(c) || c.exchange.info.name != "synchronous" ||
                    c.replicas.exchange().synchronous().backup() == 0;
           },
       .says =
           [](const Chosen& c) {
             return missed(c, "replicas.exchange.synchronous.backup") + "backup 0";
           }},
  };
}

bool expands(const CodecScheme& scheme, const proto::Codec& chosen) {
  return scheme.expands && scheme.expands(chosen);
}

Rows growth_rows() {
  return {
      {.name = "feedback_that_grows",
       .keys = {"replicas.codec.feedback"},
       .holds =
           [](const Chosen& c) {
             return !keeps_residual(codecs_of(c)) || !expands(up(c), codecs_of(c).up());
           },
       .says =
           [](const Chosen& c) {
             return "replicas.codec.feedback: on" + grows(up(c).info.name);
           }},
      {.name = "difference_that_grows",
       .keys = {"replicas.codec.down"},
       .holds =
           [](const Chosen& c) {
             return !down(c).codec || down(c).whole || !expands(down(c), codecs_of(c).down());
           },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.down: ", down(c).info.name, ": differences") +
                    grows(down(c).info.name);
           }},
  };
}

Rows down_rows() {
  return {
      {.name = "momentum_of_who_votes",
       .keys = {"replicas.codec.down.sign_vote.momentum"},
       .holds =
           [](const Chosen& c) {
             return !codecs_of(c).down().has_sign_vote() ||
                    codecs_of(c).down().sign_vote().momentum() == proto::SignVote().momentum();
           },
       .says = always("replicas.codec.down.sign_vote.momentum: it is the replicas that keep it, "
                      "and servers answer without; leave it out")},
      {.name = "down_to_all",
       .keys = {"replicas.codec.down"},
       .holds = [](const Chosen& c) { return !down(c).codec || c.exchange.info.name != "easgd"; },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.down: ",
                           down(c).info.name,
                           " is of weights that all replicas have, and easgd's server answers each "
                           "with its own; right is none");
           }},
      {.name = "down_to_who_sends_weights",
       .keys = {"replicas.codec.down"},
       .holds =
           [](const Chosen& c) { return !down(c).codec || link_of(c).travel != Travel::weights; },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.down: ",
                           down(c).info.name,
                           ": replicas of ",
                           c.exchange.info.name,
                           " send whole weights, so that what a message down has left out would "
                           "be missing in them and lost; right is none, or "
                           "replicas.exchange=diloco with rate 1 and momentum 0, which is "
                           "averaging and sends changes");
           }},
      {.name = "down_to_all_of_a_rule",
       .keys = {"replicas.codec.down"},
       .holds =
           [](const Chosen& c) {
             return !down(c).codec || !c.exchange.ruled || !c.stepping().answers_each;
           },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.down: ",
                           down(c).info.name,
                           " is of weights that all replicas have, and the step ",
                           c.step,
                           " answers each with its own; right is none");
           }},
      {.name = "down_when_asked",
       .keys = {"replicas.codec.down"},
       .holds =
           [](const Chosen& c) { return !down(c).codec || down(c).whole || !link_of(c).eager(); },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.down: ",
                           down(c).info.name,
                           " sends what weights have moved since those that a replica asks with, "
                           "and replicas.rule ",
                           c.rule,
                           " sends unasked; right are none, fp16, bf16 and int8_block");
           }},
      {.name = "down_in_host_memory",
       .keys = {"replicas.codec.down"},
       .holds =
           [](const Chosen& c) {
             const auto& devices = c.experiment.placement().devices();
             return !down(c).codec ||
                    std::all_of(devices.begin(), devices.end(), [](const std::string& device) {
                      return device == "cpu";
                    });
           },
       .says =
           [](const Chosen& c) {
             return concat("replicas.codec.down: ",
                           down(c).info.name,
                           " is decoded in host memory, and placement.devices has others; right is "
                           "none");
           }},
  };
}

}  // namespace

Result<void> check(const proto::Experiment& experiment) {
  static const Rows rows = [] {
    Rows all;
    for (const Rows& some : {link_rows(),
                             memory_rows(),
                             velocity_rows(),
                             vote_rows(),
                             gossip_rows(),
                             growth_rows(),
                             down_rows()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }();
  return check_rows(rows, Chosen(experiment));
}

}  // namespace troupe::codec_checks

namespace troupe {

Result<void> check_codecs(const proto::Experiment& experiment) {
  return codec_checks::check(experiment);
}

}  // namespace troupe
