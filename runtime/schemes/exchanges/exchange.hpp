// How replicas share what they learn (replicas.exchange): each exchange says what they share, what
// travels, what becomes of it at a server, and all else that the runtime has to know of it.
#pragma once

#include "messages/proto.hpp"
#include "runtime/schemes/registry.hpp"
#include "runtime/schemes/rules/rule.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

class PeerExchange;
struct ExchangeSeat;

/// What the replicas of an exchange have in common, which decides on the cast.
enum class Shared : std::uint8_t {
  servers,  // above each replica's shards, one a slice: Link and Rule say what they do
  nothing,  // the same chunk's shards of the replicas talk to one another
  buffer,   // one buffer in the process's memory
  own,      // a cast of its own (sandblaster)
};

/// Whose weights an exchange without servers is evaluated with, and ends with.
enum class Evaluated : std::uint8_t {
  mean,     // of all replicas', at the same step of each
  replica,  // the first living one's own
};

/// What a Link is made from.
struct LinkContext {
  const proto::Experiment& experiment;  // resolved
  std::int64_t updates = 0;             // of the run; 0: unknown
  std::int64_t in_flight = 1;           // mini-batches that a replica's pipeline works on at once
};

/// What the server of a group of replicas does.
struct GroupServer {
  Rule rule{};                  // with its replicas' pushes
  std::int64_t accumulate = 1;  // of them, before it sends what they have moved to the server above
  double merge = 1;             // share of the weights above in its own, when they come
};

struct ExchangeScheme {
  SchemeInfo info;  // chosen by replicas.exchange, or replicas.exchange.custom.name
  std::string equations{};
  std::string memory{};
  Shared shared = Shared::servers;
  /// Instead of `shared`, where a key of the exchange decides.
  std::function<Shared(const proto::Experiment&)> shares{};
  /// What becomes of a push is replicas.rule's to say; else replicas.rule is left alone.
  bool ruled = false;
  /// Each gradient is an update of the run; else an update is a mini-batch of every replica.
  bool each_updates = false;

  /// Of `servers`: what travels. Empty: the gradient of each mini-batch.
  std::function<Link(const LinkContext&)> link{};
  /// Of `servers` that no rule is chosen for.
  std::function<Rule(const RuleContext&)> rule{};
  /// Of `servers`: number of groups of replicas, each of which has servers of its own below those of all, and what
  /// these do. Empty: none.
  std::function<std::int64_t(const proto::Experiment&)> groups{};
  std::function<GroupServer(const RuleContext&)> group_server{};
  /// Of `servers`: the key of a number in replicas.exchange that is above 0 and makes servers give up pushes; "" where
  /// they take all. Empty: they do.
  std::function<std::string(const proto::Experiment&)> gives_up{};
  /// Of `servers` that no rule is chosen for: as RuleScheme::answers_each.
  bool answers_each = false;
  /// Of `nothing`: what stands between a shard and the same chunk's shards of the other replicas
  /// (actors/exchange/peers.hpp).
  std::function<std::unique_ptr<PeerExchange>(const ExchangeSeat&)> peer{};
  Evaluated evaluated = Evaluated::mean;  // of `peer`
  /// As RuleScheme::staleness. Empty: 1.
  std::function<double(const proto::Experiment&)> staleness{};
  /// Why what it sends goes through no codec (replicas.codec), as a sentence's end: "its ...". Empty: it does,
  /// up to servers and down from them.
  std::string no_codec{};
  /// Of `peer`: what its replicas tell one another goes through replicas.codec.up (ExchangeSeat::links).
  bool codec_between_peers = false;
  /// Of `codec_between_peers`: a message says how far the weights are from the copies of them that the neighbours keep,
  /// so that each neighbour has to hear all of them.
  bool copies_at_peers = false;
  /// Of `copies_at_peers`: the choice, "KEY: VALUE", by which a replica has other neighbours in each round; "" where
  /// they stay. Empty: they do.
  std::function<std::string(const proto::Experiment&)> changing_neighbours{};
  /// Of `peer`: copies of its weights, or messages of a codec, that a replica sends in the mean for each
  /// mini-batch, at most. Empty: not known.
  std::function<double(const proto::Experiment&)> copies_sent{};
  /// What to try when training has diverged. Empty: nothing of this exchange.
  std::function<std::string(const proto::Experiment&)> remedy{};
};

/// Makes an exchange known under its name: with `peer` one without servers, else one with them. Before
/// any experiment is checked. Error (usage) where the name is taken or not in snake_case, there are
/// neither servers nor `peer`, or with `peer` something is said of servers.
Result<void> register_exchange(ExchangeScheme exchange);

/// The same of one that comes with Troupe but whose `peer` the runtime cannot know; chosen as all
/// built-in ones are.
Result<void> register_built_in_exchange(ExchangeScheme exchange);

const Registry<ExchangeScheme>& exchanges();

/// Whether the replicas' changes go to one another by way of replicas.codec.up, without servers.
bool has_coded_peers(const proto::Experiment& experiment);

/// The exchange that a resolved experiment has chosen. ContractError where it is not registered.
const ExchangeScheme& exchange_of(const proto::Experiment& experiment);

/// What the experiment's replicas share; one replica on its own shares nothing.
Shared shared_by(const proto::Experiment& experiment);

/// Replicas exchange by way of servers.
bool has_servers(const proto::Experiment& experiment);

/// Of an experiment whose replicas have servers.
Link make_link(const LinkContext& context);
Rule make_rule(const RuleContext& context);

/// Number of groups that have servers of their own; 0: none.
std::int64_t groups_of(const proto::Experiment& experiment);
/// The group of replica `r`, of at least one group.
std::int32_t group_of(const proto::Experiment& experiment, std::int32_t r);
/// Of an experiment with groups.
GroupServer group_server_of(const RuleContext& context);

/// Mini-batches, over all replicas, that one update of the run stands for (stop.updates, progress).
std::int64_t batches_per_update(const proto::Experiment& experiment);

/// Mini-batches of a wave of WSP: its own number, or as many as the pipeline has in flight.
std::int64_t wave_of(const proto::Wsp& wsp, std::int64_t in_flight);

/// Inner mini-batches between two outer steps of DiLoCo, and the outer rate: the numbers given, or those of
/// its mode's paper.
std::int64_t outer_period(const proto::Diloco& diloco);
double outer_rate(const proto::Diloco& diloco);

/// The optimizer with DANA's warm-up, where a step with a momentum of its own keeps the rate of one
/// replica for many (dana_*): from 1 / R over 5 epochs, or a quarter of a run of fewer `updates` (0:
/// not known). Not where the experiment has a longer one, or says replicas.rate_factor itself.
/// `five_epochs`: in updates.
proto::Optimizer warmed_up(const proto::Experiment& experiment,
                           std::int64_t updates,
                           std::int64_t five_epochs);

/// What the learning rate is multiplied by: replicas.rate_factor, or where that is 0 one over the
/// staleness, in updates, that a scheme which takes late gradients as they come will meet. 1/n for
/// n-softsync, of which updates on arrival are the case n = R (Gupta et al. 2015, arXiv:1509.04210,
/// section 3.2); 1/(2R) for ssp, essp and wsp, whose replicas meet what the others did a mini-batch
/// later. 1 where nobody is late or the scheme bears it.
double rate_factor(const proto::Experiment& experiment);

/// Error (usage) with key, value and what would be right, where exchange, rule, parts, optimizer and
/// pipeline do not go together.
Result<void> check_replicas(const proto::Experiment& experiment);

}  // namespace troupe
