#include "apps/topologies/hosts.hpp"

#include "apps/topologies/copies.hpp"
#include "apps/topologies/placement.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe {
namespace {

using E = proto::Experiment;

/// What is wrong with a list of hosts that goes with `at`, or "".
template <class Hosts>
std::string wrong_list(const E& e, const std::string& key, const Hosts& listed, int times) {
  if (listed.size() != 0 && listed.size() != times) {
    return fill_in("{}: one host for each of the {} seconds of at, or none; there are {}",
                   key,
                   times,
                   listed.size());
  }
  for (const std::int64_t host : listed) {
    if (host >= hosts_of(e)) {
      return concat(key, ": ", host, " of ", hosts_of(e), " hosts, which are numbered from 0");
    }
  }
  return "";
}

std::string wrong_cuts(const E& e) {
  const proto::Cuts& cuts = e.clock().faults().cuts();
  for (int i = 0; i < cuts.at_size() && i < cuts.host_size() && i < cuts.other_size(); ++i) {
    if (cuts.host(i) == cuts.other(i)) {
      return concat("clock.faults.cuts.other: ", cuts.host(i), " is the same host as in host");
    }
  }
  return "";
}

/// What is wrong with a rate of events that last, or "": where they begin so often that a host, or a link, is hardly
/// ever free of them the run would not come to its end. With `most` of them under way at a time in the mean
/// (Poisson), it is free for exp(-most) of the time.
template <class Events>
std::string wrong_rate(const std::string& key, const Events& events, double targets) {
  constexpr double most = 5;
  if (events.every() == 0 || events.seconds() <= most * events.every() * targets) {
    return "";
  }
  return fill_in(
      "{}.every: one every {} seconds, each for {}, and the run hardly goes on; at least {} does",
      key,
      events.every(),
      events.seconds(),
      events.seconds() / (most * targets));
}

Result<void> check_events(const E& e) {
  const proto::Faults& f = e.clock().faults();
  const auto hosts = static_cast<double>(hosts_of(e));
  for (const std::string& wrong :
       {wrong_rate("clock.faults.freezes", f.freezes(), hosts),
        wrong_rate("clock.faults.cuts", f.cuts(), std::max(1.0, hosts * (hosts - 1) / 2))}) {
    if (!wrong.empty()) {
      return Error{ErrorKind::usage, wrong};
    }
  }
  return {};
}

Result<void> check_lists(const E& e) {
  const proto::Faults& f = e.clock().faults();
  for (const std::string& wrong :
       {wrong_list(e, "clock.faults.crashes.host", f.crashes().host(), f.crashes().at_size()),
        wrong_list(e, "clock.faults.freezes.host", f.freezes().host(), f.freezes().at_size()),
        wrong_list(e, "clock.faults.cuts.host", f.cuts().host(), f.cuts().at_size()),
        wrong_list(e, "clock.faults.cuts.other", f.cuts().other(), f.cuts().at_size()),
        wrong_cuts(e)}) {
    if (!wrong.empty()) {
      return Error{ErrorKind::usage, wrong};
    }
  }
  return {};
}

Result<void> check_back(const E& e) {
  if (e.clock().faults().crashes().back() == 0) {
    return {};
  }
  const std::string why = stays_dead(e);
  return why.empty() ? Result<void>()
                     : usage_error("clock.faults.crashes.back: a replica cannot come back {}", why);
}

}  // namespace

/// A replica gets its first weights from the servers, and what they keep of it has to be made for one that begins in
/// the middle of the run.
std::string stays_dead(const E& e) {
  const std::string exchange = choice_name(e.replicas().exchange());
  const std::set<std::string> can{"parameter_server", "synchronous", "wsp"};
  std::string why;
  const bool decoupled_diloco = e.replicas().exchange().diloco().mode().has_decoupled();
  if (!can.contains(exchange) && !decoupled_diloco) {
    why = concat("with replicas.exchange ", exchange);
  } else if (!has_servers(e)) {
    why = e.replicas().count() == 1 ? "where there is one replica"
                                    : "where replicas sum gradients without servers";
  } else if (decoupled_of(e)) {
    why = "with decoupled modules";
  } else if (!copies_words(e).empty()) {
    why = "where stages or servers have copies (placement.copies)";
  } else {
    return "";
  }
  return why +
         "; with servers of parameter_server, synchronous and wsp it can, and with mode decoupled "
         "of diloco";
}

Constraints<proto::Experiment> fault_checks() {
  return {{"hosts_of_faults", check_lists},
          {"lasting_faults", check_events},
          {"replicas_that_come_back", check_back}};
}

std::int64_t hosts_of(const proto::Experiment& e) {
  const std::int64_t asked = e.clock().faults().hosts();
  return asked > 0 ? asked : e.replicas().count() + 1;
}

Result<void> check_hosts(const Blueprint& b) {
  const auto asked = static_cast<int>(b.experiment->clock().faults().hosts());
  if (asked == 0) {
    return {};
  }
  if (const auto placed = place(b, asked); !placed) {
    return usage_error(
        "clock.faults.hosts: they would play as the processes of {}; 0 gives each replica a host",
        placed.error().message);
  }
  return {};
}

Faults make_faults(const Blueprint& b, const Cast& cast) {
  const proto::Faults& asked = b.experiment->clock().faults();
  std::vector<int> host_of;
  if (asked.hosts() > 0) {
    host_of = place(b, static_cast<int>(asked.hosts())).value().process_of;
  } else {
    for (const Cast::Member& member : cast.members) {
      host_of.push_back(member.replica + 1);
    }
  }
  return Faults(
      asked, b.experiment->seed(), std::move(host_of), static_cast<int>(hosts_of(b.experiment)));
}

}  // namespace troupe
