#include "apps/topologies/copies.hpp"

#include "apps/topologies/servers.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"

namespace troupe {
namespace {

using E = proto::Experiment;

bool copies(const E& e) {
  return e.replicas().copies() > 1;
}

}  // namespace

Constraints<E> copy_checks() {
  return only_where<E>(
      copies,
      {
          {"copies_of_servers",
           [](const E& e) { return has_servers(e); },
           "replicas.copies: there is no server to copy in this experiment; use 1"},
          {"copies_of_one_level",
           [](const E& e) { return groups_of(e) == 0; },
           "replicas.copies: servers of groups of replicas (exchange halos) have no copies; use "
           "1"},
          {"copies_without_extension",
           [](const E& e) { return !e.extension().has_custom(); },
           "replicas.copies: the machines of an extension know nothing of copies of servers; use "
           "1"},
          {"copies_with_an_order",
           [](const E& e) { return e.clock().faults().wire().numbered(); },
           "replicas.copies: copies of a server rely on links that keep the order of messages; "
           "use clock.faults.wire.numbered=true"},
      });
}

Constraint<Blueprint> copies_that_decide_alike() {
  return {"copies_that_decide_alike",
          [](const Blueprint& b) { return !copies(b.experiment) || !b.link || !one_decides(b); },
          "replicas.copies: with this rule one of several servers decides for all, and has no "
          "copies; use 1, or one server: replicas.shards=1 and one chunk"};
}

}  // namespace troupe
