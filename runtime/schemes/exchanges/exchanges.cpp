#include "runtime/schemes/exchanges/exchanges.hpp"

#include "experiment/data.pb.h"
#include "experiment/replicas.pb.h"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"
#include "runtime/schemes/exchanges/exchange_checks.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

template <class Context>
const proto::Exchange& exchange(const Context& c) {
  return sections::replicas(c.experiment).exchange();
}

Rule rule_of_parts(std::unique_ptr<Admission> admission, std::unique_ptr<Step> step) {
  return {std::move(admission), std::make_unique<Scale>(), std::move(step)};
}

std::string shorter_period(const proto::Experiment& e) {
  return concat(
      "a shorter replicas.exchange.", choice_name(sections::replicas(e).exchange()), ".period");
}

/// Each replica trains by itself, and all meet every `period` mini-batches.
Link by_itself(const LinkContext& c,
               Travel travel,
               std::int64_t period,
               decltype(Link::kind) how = LocalLink{}) {
  Link link;
  link.travel = travel;
  link.push_every = period;
  link.last = c.updates;
  link.kind = std::move(how);
  return link;
}

Link parameter_server_link(const LinkContext& c) {
  const proto::ParameterServer& server = exchange(c).parameter_server();
  Link link;
  link.push_every = server.n_push();
  link.rate_stride =
      std::max<std::int64_t>(1, sections::replica_count(c.experiment) / link.push_every);
  const bool overlaps = server.fetch() == proto::ParameterServer::overlaps;
  if (server.n_fetch() > 1 || overlaps) {
    link.kind =
        LocalLink{.fetch_every = server.n_fetch(),
                  .takes = overlaps ? LocalLink::Takes::overlapping : LocalLink::Takes::at_once};
    link.run_rate = true;
  }
  return link;
}

Link diloco_link(const LinkContext& c) {
  const proto::DilocoMode& mode = exchange(c).diloco().mode();
  Link link = by_itself(c, Travel::change, outer_period(exchange(c).diloco()));
  link.dynamic = mode.has_asynchronous() && mode.asynchronous().dynamic_steps();
  if (mode.has_streaming()) {
    StreamingLink streaming{.overlap = mode.streaming().overlap(), .mix = mode.streaming().mix()};
    if (mode.streaming().fragments() > 0 || sections::replicas(c.experiment).shards() == 1) {
      streaming.fragments = {.most = mode.streaming().fragments()};
    }
    link.kind = streaming;
  }
  if (mode.has_decoupled()) {
    const proto::DecoupledDiloco& o = mode.decoupled();
    link.kind = StreamingLink{
        .overlap = o.overlap(),
        .never_waits = true,
        .fragments = StreamingLink::Fragments{
            .most = o.fragments(), .of_tensors = o.dealing() == proto::DecoupledDiloco::tensors}};
    link.dynamic = o.dynamic_steps();
  }
  if (mode.has_asynchronous() || mode.has_quorum() || mode.has_decoupled()) {
    link.last = 0;         // the end comes when all replicas together have made so many
    link.run_rate = true;  // a fast replica makes more steps than the run has, a slow one fewer
  }
  return link;
}

std::unique_ptr<Admission> diloco_admission(const proto::Diloco& diloco) {
  const proto::DilocoMode& mode = diloco.mode();
  if (mode.has_asynchronous()) {
    return as_they_come();
  }
  if (mode.has_decoupled()) {
    return decoupled_quorum(diloco);
  }
  return mode.has_quorum() ? quorum(mode.quorum()) : all_together(0);
}

Link easgd_link(const LinkContext& c) {
  const proto::Easgd& easgd = exchange(c).easgd();
  const bool simultaneous = easgd.order() == proto::Easgd::simultaneous;
  LocalLink local;
  if (simultaneous && !easgd.synchronous() && easgd.moment() == proto::Easgd::before) {
    local.takes = LocalLink::Takes::before_step;
  } else {
    local.before = simultaneous;
  }
  return by_itself(c, Travel::weights, easgd.period(), local);
}

Link wsp_link(const LinkContext& c) {
  const std::int64_t wave = wave_of(exchange(c).wsp(), c.in_flight);
  const LocalLink::Clocks clocks{.bound = wave * exchange(c).wsp().distance()};
  return by_itself(c, Travel::change, wave, LocalLink{.clocks = clocks});
}

}  // namespace

std::int64_t wave_of(const proto::Wsp& wsp, std::int64_t in_flight) {
  return wsp.wave() > 0 ? wsp.wave() : in_flight;
}

std::int64_t outer_period(const proto::Diloco& diloco) {
  if (diloco.period() > 0) {
    return diloco.period();
  }
  if (diloco.mode().has_streaming()) {
    return 100;
  }
  return diloco.mode().has_decoupled() ? 24 : 50;
}

double outer_rate(const proto::Diloco& diloco) {
  if (diloco.rate() > 0) {
    return diloco.rate();
  }
  return diloco.mode().has_streaming() ? 0.4 : 0.7;
}

namespace exchange_schemes {

ExchangeScheme parameter_server() {
  return {.info = {.name = "parameter_server",
                   .summary = "replicas send gradients to a server and get its weights back; "
                              "replicas.rule says what the server does with a gradient",
                   .paper = "Downpour: Dean et al., NIPS 2012; Li et al., OSDI 2014"},
          .equations = "as replicas.rule has it",
          .memory = "as replicas.rule has it",
          .ruled = true,
          .link = parameter_server_link};
}

ExchangeScheme synchronous() {
  return {
      .info = {.name = "synchronous",
               .summary = "the mean gradient of all replicas makes each update; with backup "
                          "replicas, that of the first ones",
               .paper = "backup: Chen et al. 2016, arXiv:1604.00981",
               .check = exchange_checks::synchronous},
      .equations = "w <- w - eta opt(mean g)",
      .memory = "the optimizer's moments (ring, tree, nccl: at each replica)",
      .shares =
          [](const proto::Experiment& e) { return reduces(e) ? Shared::nothing : Shared::servers; },
      .rule =
          [](const RuleContext& c) {
            return rule_of_parts(all_together(exchange(c).synchronous().backup()),
                                 optimizer_step(c, Mean::by_mini_batches));
          },
      .gives_up = [](const proto::Experiment& e) -> std::string {
        const bool drops = sections::replicas(e).exchange().synchronous().backup() > 0;
        return drops ? "replicas.exchange.synchronous.backup" : "";
      }};
}

ExchangeScheme averaging() {
  return {
      .info = {.name = "averaging",
               .summary =
                   "each replica trains by itself; every H mini-batches the models are averaged",
               .paper = "local SGD: Stich, ICLR 2019; Su & Chen 2015",
               .check = exchange_checks::averaging},
      .equations = "w <- mean w_i; moments kept, averaged too, or zeroed",
      .memory = "0",
      .link =
          [](const LinkContext& c) {
            const proto::Averaging& o = exchange(c).averaging();
            using Moments = LocalLink::Moments;
            const Moments moments = o.state() == proto::Averaging::averaged ? Moments::travel
                                    : o.state() == proto::Averaging::reset  ? Moments::reset
                                                                            : Moments::stay;
            return by_itself(c, Travel::weights, o.period(), LocalLink{.moments = moments});
          },
      .rule = [](const RuleContext&) { return rule_of_parts(all_together(0), averaging_step()); },
      .remedy = shorter_period};
}

ExchangeScheme bmuf() {
  return {
      .info = {.name = "bmuf",
               .summary = "like averaging, with momentum from one average to the next",
               .paper =
                   "Chen & Huo, ICASSP 2016: W and the point sent are kept apart, as in the paper",
               .check = exchange_checks::bmuf},
      .equations =
          "G = mean w_i - sent; Delta <- mu Delta + zeta G; W <- W + Delta; sent W (classical), W "
          "+ mu Delta (Nesterov's)",
      .memory = "1, and the point sent",
      .link =
          [](const LinkContext& c) {
            const proto::Bmuf& o = exchange(c).bmuf();
            using Moments = LocalLink::Moments;
            const Moments moments = o.reset() ? Moments::reset : Moments::stay;
            return by_itself(c, Travel::weights, o.period(), LocalLink{.moments = moments});
          },
      .rule = [](const RuleContext& c) { return rule_of_parts(all_together(0), bmuf_step(c)); },
      .remedy = shorter_period};
}

ExchangeScheme easgd() {
  return {.info = {.name = "easgd",
                   .summary = "a spring ties each replica to a centre: a replica and the centre "
                              "move towards each other",
                   .paper = "Zhang, Choromanska & LeCun, NIPS 2015, arXiv:1412.6651; with momentum "
                            "(optimizer.rule momentum, nesterov) its EAMSGD"},
          .equations =
              "every tau-th mini-batch: d = alpha (x - centre), alpha = beta / R, x before the "
              "mini-batch; x <- x - eta opt(g(x)) - d; centre <- centre + d, read and moved when "
              "the mini-batch begins (asynchronous, algorithm 1) or when its gradient is there "
              "(synchronous, or moment after). Sequential: d from x after the step",
          .memory = "0; simultaneous with a moment after sends x before and after the step",
          .link = easgd_link,
          .rule =
              [](const RuleContext& c) {
                return rule_of_parts(
                    exchange(c).easgd().synchronous() ? all_together(0) : as_they_come(),
                    elastic_step(c));
              },
          .answers_each = true,
          .remedy = shorter_period};
}

ExchangeScheme diloco() {
  return {
      .info = {.name = "diloco",
               .summary = "an outer optimizer applies what the replicas' weights have moved in H "
                          "inner mini-batches",
               .paper = "Douillard et al. 2023, arXiv:2311.08105; asynchronous: Liu et al. 2024, "
                        "arXiv:2401.09135; streaming: Douillard et al. 2025, arXiv:2501.18512; "
                        "decoupled: Douillard et al. 2026, arXiv:2604.21428",
               .check = exchange_checks::diloco},
      .equations =
          "D = mean change; m <- mu m + D; w <- w - eps (D + mu m). Asynchronous: D / R at each "
          "arrival, momentum with every R-th. Decoupled, by fragment: of each tensor but "
          "embeddings D = (mean |u|) phi(mean phi(u)), phi(u) = u / |u|, the means weighted by "
          "tokens x tokens / steps",
      .memory = "1; 2 for delayed Nesterov",
      .link = diloco_link,
      .rule =
          [](const RuleContext& c) {
            return rule_of_parts(diloco_admission(exchange(c).diloco()), outer_step(c));
          },
      .remedy = shorter_period};
}

ExchangeScheme hogwild() {
  return {
      .info = {.name = "hogwild",
               .summary = "all replicas of the process share one buffer of weights and none waits",
               .paper = "Recht, Re, Wright & Niu, NIPS 2011"},
      .equations = "w_j <- w_j - eta g_j, component by component",
      .memory = "no server",
      .shared = Shared::buffer,
      .each_updates = true,
      .staleness =
          [](const proto::Experiment& e) {
            return sections::data(e).has_sparse() ? 1.0
                                                  : static_cast<double>(sections::replica_count(e));
          },
      .remedy =
          [](const proto::Experiment&) {
            return std::string("fewer replicas");
          }};
}

ExchangeScheme wsp() {
  return {
      .info = {.name = "wsp",
               .summary = "replicas push once for each wave of mini-batches; a wave begins when "
                          "the slowest replica is at most D waves behind",
               .paper = "HetPipe: Park et al., ATC 2020, arXiv:2005.14038"},
      .equations = "w <- w - u, u the change of a wave; wave c begins when all have c - D",
      .memory = "0",
      .link = wsp_link,
      .rule =
          [](const RuleContext& c) {
            const proto::Wsp& o = exchange(c).wsp();
            return rule_of_parts(waves(wave_of(o, c.in_flight), o.distance()), subtracting_step());
          },
      .staleness =
          [](const proto::Experiment& e) {
            return 2 * static_cast<double>(sections::replica_count(e));
          },
      .remedy =
          [](const proto::Experiment& e) {
            return std::string(sections::replicas(e).exchange().wsp().distance() > 0
                                   ? "a smaller replicas.exchange.wsp.distance"
                                   : "");
          }};
}

ExchangeScheme sandblaster() {
  return {
      .info =
          {.name = "sandblaster",
           .summary =
               "L-BFGS on all of the data; the replicas compute its gradient portion by portion",
           .paper = "Dean et al., NIPS 2012, section 4.2; Nocedal & Wright 2006, section 7.2",
           .check = exchange_checks::sandblaster},
      .equations =
          "w <- w + t d, d the two-loop recursion of g over m pairs (s, y) with s.y > 0; t "
          "shortened until the loss falls as the slope promises",
      .memory = "0",
      .shared = Shared::own,
      .each_updates = true};
}

}  // namespace exchange_schemes

}  // namespace troupe
