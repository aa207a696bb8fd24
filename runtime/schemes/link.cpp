#include "runtime/schemes/link.hpp"

#include "messages/experiment.hpp"
#include "runtime/schemes/rule.hpp"

#include <algorithm>

namespace troupe {

bool Link::pushes(std::int64_t n, std::size_t slice, std::size_t slices) const {
  if (last > 0 && n == last) {
    return true;
  }
  if (!streams) {
    return n % push_every == 0;
  }
  // The fragments take turns within a period.
  const std::int64_t turn =
      push_every * static_cast<std::int64_t>(slice) / static_cast<std::int64_t>(slices);
  return n > turn && (n - turn) % push_every == 0;
}

bool has_servers(const proto::Experiment& experiment) {
  const proto::Replicas& replicas = experiment.replicas();
  const proto::Exchange& exchange = replicas.exchange();
  if (exchange.has_hogwild() || exchange.has_sandblaster() ||
      (exchange.has_synchronous() &&
       exchange.synchronous().reduction() != proto::Synchronous::server)) {
    return false;
  }
  // One replica that pushes each gradient and fetches each version is a run without replicas, unless
  // somebody asks for a rule's own arithmetic.
  const bool plain = exchange.has_parameter_server() && replicas.rule().has_asgd() &&
                     replicas.admit().has_by_rule() && replicas.scale().has_by_rule() &&
                     replicas.step().has_by_rule() && exchange.parameter_server().n_push() == 1 &&
                     exchange.parameter_server().n_fetch() == 1;
  return replicas.count() > 1 || !plain;
}

std::int64_t batches_per_update(const proto::Experiment& experiment) {
  const proto::Replicas& replicas = experiment.replicas();
  const std::int64_t R = replicas.count();
  if (replicas.exchange().has_hogwild() || replicas.exchange().has_sandblaster()) {
    return 1;  // each gradient is an update; Sandblaster's is everybody's
  }
  if (!replicas.exchange().has_parameter_server()) {
    return R;
  }
  const std::int64_t pushed = replicas.exchange().parameter_server().n_push();
  const auto group = [&](const proto::Softsync& softsync) {
    return std::max<std::int64_t>(1, R / softsync.n());
  };
  if (replicas.admit().has_by_rule() && replicas.rule().has_custom()) {
    const Scheme* scheme = find_scheme(replicas.rule().custom().name());
    return scheme && scheme->pushes ? pushed * std::max<std::int64_t>(1, scheme->pushes(experiment))
                                    : pushed;
  }
  if (replicas.admit().has_softsync()) {
    return pushed * group(replicas.admit().softsync());
  }
  if (replicas.admit().has_by_rule() && replicas.rule().has_softsync()) {
    return pushed * group(replicas.rule().softsync());
  }
  return pushed;
}

std::int64_t wave_of(const proto::Wsp& wsp, std::int64_t in_flight) {
  return wsp.wave() > 0 ? wsp.wave() : in_flight;
}

Link make_link(const proto::Experiment& experiment, std::int64_t updates, std::int64_t in_flight) {
  const proto::Exchange& exchange = experiment.replicas().exchange();
  const proto::ReplicaRule& rule = experiment.replicas().rule();
  const std::int64_t R = experiment.replicas().count();
  Link link;
  const auto by_itself = [&](Travel travel, std::int64_t period) {
    link.travel = travel;
    link.steps = true;
    link.push_every = period;
    link.fetch_every = period;
    link.last = updates;
  };
  if (exchange.has_parameter_server()) {
    link.push_every = exchange.parameter_server().n_push();
    link.fetch_every = exchange.parameter_server().n_fetch();
    if (rule.has_ssp() || rule.has_essp()) {
      link.travel = Travel::change;
      link.steps = true;
      link.bound = rule.has_ssp() ? rule.ssp().bound() : rule.essp().bound();
      link.eager = rule.has_essp();
      link.rate_stride = R;
      link.run_rate = true;
    } else if (rule.has_dana_slim()) {
      link.travel = Travel::slim;
    } else {
      link.steps = link.fetch_every > 1;
      link.rate_stride = std::max<std::int64_t>(1, R / link.push_every);
      link.run_rate = link.steps;
    }
  } else if (exchange.has_averaging()) {
    by_itself(Travel::weights, exchange.averaging().period());
    link.moments = exchange.averaging().state() == proto::Averaging::averaged;
    link.reset_moments = exchange.averaging().state() == proto::Averaging::reset;
  } else if (exchange.has_bmuf()) {
    by_itself(Travel::weights, exchange.bmuf().period());
    link.reset_moments = exchange.bmuf().reset();
  } else if (exchange.has_easgd()) {
    by_itself(Travel::weights, exchange.easgd().period());
  } else if (exchange.has_diloco()) {
    const proto::DilocoMode& mode = exchange.diloco().mode();
    by_itself(Travel::change, exchange.diloco().period());
    link.dynamic = mode.has_asynchronous() && mode.asynchronous().dynamic_steps();
    if (mode.has_streaming()) {
      link.streams = true;
      link.overlap = mode.streaming().overlap();
      link.mix = mode.streaming().mix();
    }
    if (mode.has_asynchronous() || mode.has_decoupled()) {
      link.last = 0;         // the end comes when all replicas together have made so many
      link.run_rate = true;  // a fast replica makes more steps than the run has, a slow one fewer
    }
  } else if (exchange.has_wsp()) {
    const std::int64_t wave = wave_of(exchange.wsp(), in_flight);
    by_itself(Travel::change, wave);
    link.bound = wave * exchange.wsp().distance();
  }
  return link;  // synchronous: as it is
}

}  // namespace troupe
