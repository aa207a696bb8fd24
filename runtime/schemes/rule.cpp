#include "runtime/schemes/rule.hpp"

#include "kernels/check.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/link.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace troupe {
namespace {

const proto::Replicas& replicas(const RuleContext& c) {
  return c.experiment.replicas();
}

// Where replicas.admit, scale or step has taken a part of another rule, the part's options are there.

const proto::Softsync& softsync_options(const proto::Replicas& r) {
  return r.admit().has_softsync() ? r.admit().softsync() : r.rule().softsync();
}

const proto::Ringmaster& ringmaster_options(const RuleContext& c) {
  const auto& r = replicas(c);
  return r.admit().has_ringmaster() ? r.admit().ringmaster() : r.rule().ringmaster();
}

const proto::GapAware& gap_aware_options(const RuleContext& c) {
  const auto& r = replicas(c);
  return r.scale().has_gap_aware() ? r.scale().gap_aware() : r.rule().gap_aware();
}

const proto::DcAsgd& dc_asgd_options(const RuleContext& c) {
  const auto& r = replicas(c);
  return r.scale().has_dc_asgd() ? r.scale().dc_asgd() : r.rule().dc_asgd();
}

const proto::Fasgd& fasgd_options(const RuleContext& c) {
  const auto& r = replicas(c);
  return r.scale().has_fasgd() ? r.scale().fasgd() : r.rule().fasgd();
}

const proto::Dana& dana_options(const RuleContext& c) {
  const auto& r = replicas(c);
  return r.step().has_dana_zero() ? r.step().dana_zero() : r.rule().dana_zero();
}

std::unique_ptr<Admission> make_softsync(const RuleContext& c) {
  return softsync(softsync_options(replicas(c)));
}

std::unique_ptr<Admission> make_ringmaster(const RuleContext& c) {
  const std::int64_t bound = ringmaster_options(c).bound();
  // Twice the lag of equal replicas, R (d + 1) - 1, and one: a pipeline adds its own delay.
  return ringmaster(bound > 0 ? bound : 2 * c.replicas * (c.delay + 1));
}

std::unique_ptr<Scale> make_dana_dc_scale(const RuleContext& c) {
  proto::DcAsgd options;  // constant
  options.set_lambda(replicas(c).rule().dana_dc().lambda());
  return delay_compensation(c, options);
}

std::vector<Scheme> built_in() {
  const auto velocity = [](Reach sent) {
    return [sent](const RuleContext& c) {
      return momentum_step(c, sent);
    };
  };
  const auto dana = [](const RuleContext& c) {
    return dana_step(c, dana_options(c));
  };
  const auto subtracting = [](const RuleContext&) {
    return subtracting_step();
  };
  return {
      {.name = "asgd",
       .summary = "each gradient on arrival, by the experiment's optimizer",
       .equations = "w <- w - eta opt(g)",
       .memory = "the optimizer's moments",
       .paper = "Downpour: Dean et al., NIPS 2012"},
      {.name = "heavy_ball",
       .summary =
           "on arrival, one velocity at the server; in-flight gradients meet weights that it "
           "has moved on",
       .equations = "v <- gamma v + g; w <- w - eta v",
       .memory = "1",
       .paper = "Polyak 1964, applied on arrival",
       .step = velocity({})},
      {.name = "nag",
       .summary = "on arrival, one velocity at the server, whose look-ahead point is sent",
       .equations = "v <- gamma v + g; w <- w - eta v; sent w - eta gamma v",
       .memory = "1, and the point sent",
       .paper = "NAG-ASGD, the baseline of Hakimi et al. 2019, arXiv:1907.11612",
       .step = velocity({ReachKind::geometric, 1})},
      {.name = "multi",
       .summary = "on arrival, a velocity for each replica, so that none mixes with another's",
       .equations = "v_i <- gamma v_i + g; w <- w - eta v_i",
       .memory = "R",
       .paper = "Multi-ASGD, an ablation of Hakimi et al. 2019, arXiv:1907.11612",
       .step = multi_step},
      {.name = "adagrad",
       .summary = "on arrival, a rate for each parameter: bears many replicas without momentum",
       .equations = "s <- s + g^2; w <- w - eta g / (sqrt(s) + epsilon)",
       .memory = "1",
       .paper = "Downpour: Dean et al., NIPS 2012; Duchi et al. 2011",
       .step = adagrad_step},
      {.name = "softsync",
       .summary = "the mean of the first c gradients, from whomever; staleness about n",
       .equations = "c = max(1, floor(living / n)); w <- w - eta opt(1/c sum g)",
       .memory = "the optimizer's moments",
       .paper = "n-softsync: Gupta et al. 2015, arXiv:1509.04210",
       .admission = make_softsync},
      {.name = "ssp",
       .summary = "replicas move by themselves and push their changes; nobody begins a mini-batch "
                  "that the slowest is more than s behind",
       .equations = "w <- w - u, u = w_before - w_after; clock c begins when all have c - s",
       .memory = "0",
       .paper = "stale synchronous parallel: Ho et al., NIPS 2013",
       .admission =
           [](const RuleContext& c) {
             return stale_synchronous(replicas(c).rule().ssp().bound(), false);
           },
       .step = subtracting},
      {.name = "essp",
       .summary = "ssp, whose server sends new weights unasked when the slowest clock advances",
       .equations = "as ssp",
       .memory = "0",
       .paper = "Dai et al., AAAI 2015, arXiv:1410.8043",
       .admission =
           [](const RuleContext& c) {
             return stale_synchronous(replicas(c).rule().essp().bound(), true);
           },
       .step = subtracting},
      {.name = "staleness_aware",
       .summary = "on arrival, each gradient divided by its staleness",
       .equations = "w <- w - eta opt(g / max(1, tau))",
       .memory = "the optimizer's moments",
       .paper = "Zhang, Gupta, Lian & Liu, IJCAI 2016, arXiv:1511.05950",
       .scale = [](const RuleContext&) { return staleness_division(); },
       .bears_delay = true},
      {.name = "gap_aware",
       .summary = "on arrival, divided by how far the weights have moved, in steps at the largest "
                  "rate",
       .equations = "w <- w - eta opt(g / (1 + |w - w_read| / C)), C the mean size of a step",
       .memory = "what replicas read (up to R), and the optimizer's moments",
       .paper = "Barkai, Hakimi & Schuster, ICLR 2020, arXiv:1909.10802",
       .scale = [](const RuleContext& c) { return gap_damping(c, gap_aware_options(c)); },
       .bears_delay = true},
      {.name = "dc_asgd",
       .summary = "on arrival, corrected to first order for how far the weights have moved",
       .equations = "constant: g + lambda g^2 (w - w_read); adaptive: lambda / sqrt(mean g^2); "
                    "absolute: |g| for g^2",
       .memory = "what replicas read (up to R), 1 if adaptive, and the optimizer's moments",
       .paper = "Zheng et al., ICML 2017, arXiv:1609.08326",
       .scale =
           [](const RuleContext& c) {
             return delay_compensation(c, dc_asgd_options(c));
           }},
      {.name = "fasgd",
       .summary = "on arrival, divided by the deviation of the parameter's gradients and the "
                  "staleness",
       .equations = "n <- gamma n + (1-gamma) g^2; b <- gamma b + (1-gamma) g; v <- beta v + "
                    "(1-beta) sqrt(n - b^2 + epsilon); w <- w - eta opt(g / (v max(1, tau)))",
       .memory = "3, and the optimizer's moments",
       .paper = "Odena 2016, arXiv:1601.04033",
       .scale = [](const RuleContext& c) { return deviation_division(c, fasgd_options(c)); },
       .bears_delay = true},
      {.name = "dana_zero",
       .summary = "a velocity for each replica; the point where all of them lead is sent",
       .equations = "v_i <- gamma v_i + g; w <- w - eta v_i; sent w - gamma eta sum_j v_j (by the "
                    "server's rate), w - gamma sum_j eta_j v_j (by the senders')",
       .memory = "R + 1, and the point sent",
       .paper = "Hakimi et al. 2019, arXiv:1907.11612",
       .step = dana},
      {.name = "dana_slim",
       .summary = "dana_zero with the velocities at the replicas: the server keeps nothing",
       .equations = "replica: v' = gamma v + g, pushes u = eta (gamma v' + g) + (eta - eta_prev) "
                    "gamma v; server: w <- w - u. By the server's rate: u = gamma v' + g; w <- w - "
                    "eta u",
       .memory = "0 (1 at each replica)",
       .paper = "Hakimi et al. 2019, arXiv:1907.11612",
       .step = slim_step},
      {.name = "dana_dc",
       .summary = "dana_zero with dc_asgd's correction from the point that was sent",
       .equations = "g + lambda g^2 (w - w_sent) in place of g; then dana_zero",
       .memory = "R + 1, and the points sent (up to R)",
       .paper = "Hakimi et al. 2019, arXiv:1907.11612",
       .scale = make_dana_dc_scale,
       .step = dana},
      {.name = "lwp",
       .summary = "one velocity at the server; the point R - 1 steps ahead along it is sent",
       .equations = "v <- gamma v + g; w <- w - eta v; sent w - (R-1) eta v",
       .memory = "1, and the point sent",
       .paper = "linear weight prediction: Kosson et al., MLSys 2021, arXiv:2003.11666",
       .step =
           [](const RuleContext& c) {
             return momentum_step(c, {ReachKind::linear, c.replicas - 1});
           }},
      {.name = "smega2",
       .summary = "one velocity that ticks every R gradients, and its look-ahead by R of them",
       .equations =
           "w <- w - eta (g + gamma v); A <- A + g; each R-th: v <- gamma v + A/R, A <- 0; "
           "sent w - eta gamma ((R + c (gamma-1)) v + c/R A), c gradients since",
       .memory = "2, and the point sent",
       .paper = "Cohen, Hakimi & Schuster, ICPP 2022",
       .step = smega2_step},
      {.name = "ormo",
       .summary = "momentum in the order of the gradients' iterations, in buckets of R",
       .equations =
           "bucket opens: w <- w - eta gamma v, v <- gamma v; a gradient d buckets late: v "
           "<- v + gamma^d g, w <- w - eta (1 - gamma^(d+1)) / (1 - gamma) g",
       .memory = "1",
       .paper = "Shi et al., NeurIPS 2024, arXiv:2407.19234",
       .step = ormo_step},
      {.name = "ringmaster",
       .summary = "on arrival; a gradient as late as the bound is dropped and its replica gets the "
                  "newest weights",
       .equations = "tau < bound: w <- w - eta opt(g)",
       .memory = "the optimizer's moments",
       .paper = "Maranjyan, Tyurin & Richtarik, ICML 2025, arXiv:2501.16168",
       .admission = make_ringmaster},
      {.name = "delayed",
       .summary = "the replicas in cyclic order: a fixed staleness of R - 1",
       .equations = "w <- w - eta opt(g(w of R - 1 updates ago))",
       .memory = "the optimizer's moments",
       .paper = "Agarwal & Duchi, NIPS 2011, arXiv:1104.5525",
       .admission =
           [](const RuleContext&) {
             return cyclic();
           }},
  };
}

std::vector<Scheme>& table() {
  static std::vector<Scheme> all = built_in();
  return all;
}

/// The scheme whose part an experiment takes: of `part` where that is chosen, else of the rule.
const Scheme& scheme_of(const proto::Replicas& r, const std::string& part) {
  std::string name = part.empty() || part == "by_rule" ? choice_name(r.rule()) : part;
  if (name == "none" || name == "optimizer" || name.empty()) {
    name = "asgd";
  }
  if (name == "custom") {
    name = r.rule().custom().name();
  }
  const Scheme* found = find_scheme(name);
  TROUPE_CHECK(found, "no scheme '", name, "'");
  return *found;
}

Rule server_rule(const RuleContext& c) {
  const proto::Replicas& r = replicas(c);
  const Scheme& admit = scheme_of(r, choice_name(r.admit()));
  const Scheme& scale = scheme_of(r, choice_name(r.scale()));
  const Scheme& step = scheme_of(r, choice_name(r.step()));
  return {.admission = admit.admission ? admit.admission(c) : std::make_unique<Admission>(),
          .scale = scale.scale ? scale.scale(c) : std::make_unique<Scale>(),
          .step = step.step ? step.step(c) : optimizer_step(c, Mean::plain)};
}

/// Updates by which a gradient is late where rule, admit, scale and step do nothing about it.
double unattended_staleness(const proto::Experiment& e) {
  const proto::Replicas& r = e.replicas();
  const auto count = static_cast<double>(r.count());
  if (r.count() == 1) {
    return 1;
  }
  if (r.exchange().has_hogwild() && !e.data().has_sparse()) {
    return count;
  }
  if (r.exchange().has_wsp() ||
      (r.exchange().has_parameter_server() && (r.rule().has_ssp() || r.rule().has_essp()))) {
    return 2 * count;  // what the others do in a mini-batch is met in the one after it
  }
  if (!r.exchange().has_parameter_server() || scheme_of(r, choice_name(r.scale())).bears_delay ||
      scheme_of(r, choice_name(r.step())).bears_delay) {
    return 1;
  }
  const Scheme& admit = scheme_of(r, choice_name(r.admit()));
  if (admit.pushes) {
    return std::max(1.0, count / static_cast<double>(admit.pushes(e)));
  }
  return admit.name == "softsync" ? std::min(count, static_cast<double>(softsync_options(r).n()))
                                  : count;
}

std::unique_ptr<Admission> diloco_admission(const proto::DilocoMode& mode) {
  if (mode.has_asynchronous()) {
    return std::make_unique<Admission>();
  }
  return mode.has_decoupled() ? quorum(mode.decoupled()) : all_together(0);
}

}  // namespace

std::int32_t Ledger::living() const {
  return static_cast<std::int32_t>(
      std::count_if(replicas.begin(), replicas.end(), [](const Standing& s) { return s.alive; }));
}

std::int64_t Ledger::slowest() const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Standing& s : replicas) {
    if (s.alive) {
      least = std::min(least, s.clock);
    }
  }
  return least;
}

Admission::Choice Admission::choose(const std::vector<Arrival>& /*waiting*/,
                                    const Ledger& /*ledger*/,
                                    double /*now*/) const {
  return {.take = {0}};
}

bool Admission::answers(std::int32_t replica, const Ledger& ledger) const {
  return ledger.replicas.at(static_cast<std::size_t>(replica)).waiting == 0;
}

double rate_factor(const proto::Experiment& experiment) {
  const double given = experiment.replicas().rate_factor();
  return given > 0 ? given : 1 / unattended_staleness(experiment);
}

double custom_value(const proto::Experiment& experiment, std::string_view key, double otherwise) {
  for (const proto::CustomValue& value : experiment.replicas().rule().custom().values()) {
    if (value.key() == key) {
      return value.value();
    }
  }
  return otherwise;
}

double RuleContext::custom(std::string_view key, double otherwise) const {
  return custom_value(experiment, key, otherwise);
}

Result<void> register_scheme(Scheme scheme) {
  const std::string& name = scheme.name;
  const bool snake_case = !name.empty() && std::islower(static_cast<unsigned char>(name.front())) &&
                          std::all_of(name.begin(), name.end(), [](unsigned char c) {
                            return std::islower(c) || std::isdigit(c) || c == '_';
                          });
  if (!snake_case) {
    return Error{
        ErrorKind::usage,
        concat("register_scheme: \"",
               name,
               "\" is no name; right are lower-case letters, digits and _, a letter first")};
  }
  if (find_scheme(name) || name == "custom") {
    return Error{ErrorKind::usage, concat("register_scheme: \"", name, "\" is taken")};
  }
  table().push_back(std::move(scheme));
  return {};
}

const std::vector<Scheme>& schemes() {
  return table();
}

const Scheme* find_scheme(std::string_view name) {
  const auto& all = table();
  const auto found =
      std::find_if(all.begin(), all.end(), [name](const Scheme& s) { return s.name == name; });
  return found == all.end() ? nullptr : &*found;
}

bool is_built_in(std::string_view name) {
  return name != "custom" && proto::ReplicaRule::descriptor()->FindFieldByName(std::string(name));
}

const std::vector<ExchangeScheme>& exchange_schemes() {
  static const std::vector<ExchangeScheme> all{
      {"parameter_server",
       "gradients to a server, its weights back; what becomes of a gradient is replicas.rule's",
       "as replicas.rule has it",
       "as replicas.rule has it",
       "Downpour: Dean et al., NIPS 2012; Li et al., OSDI 2014"},
      {"synchronous",
       "the mean gradient of all replicas makes each update; with backup replicas, of the first "
       "ones",
       "w <- w - eta opt(mean g)",
       "the optimizer's moments (ring, tree: at each replica)",
       "backup: Chen et al. 2016, arXiv:1604.00981"},
      {"averaging",
       "each replica trains by itself; every H mini-batches the models are averaged",
       "w <- mean w_i; moments kept, averaged too, or zeroed",
       "0",
       "local SGD: Stich, ICLR 2019; Su & Chen 2015"},
      {"bmuf",
       "averaging with momentum over the blocks",
       "G = mean w_i - sent; Delta <- mu Delta + zeta G; W <- W + Delta; sent W (classical), W + "
       "mu "
       "Delta (Nesterov's)",
       "1, and the point sent",
       "Chen & Huo, ICASSP 2016: W and the point sent are kept apart, as in the paper"},
      {"easgd",
       "replicas tied to a centre by a spring: a replica and the centre move towards each other",
       "d = alpha (x - centre), alpha = beta / R; x <- x - d; centre <- centre + d",
       "0",
       "Zhang, Choromanska & LeCun, NIPS 2015, arXiv:1412.6651"},
      {"diloco",
       "an outer optimizer over what the replicas have moved in H inner mini-batches",
       "D = mean change; m <- mu m + D; w <- w - eps (D + mu m). Asynchronous: D / R at each "
       "arrival, "
       "momentum with every R-th",
       "1; 2 for delayed Nesterov",
       "Douillard et al. 2023, arXiv:2311.08105; Liu et al. 2024, arXiv:2401.09135; Douillard et "
       "al. "
       "2025, arXiv:2501.18512"},
      {"hogwild",
       "one buffer that all replicas of the process share, without locks",
       "w_j <- w_j - eta g_j, component by component",
       "no server",
       "Recht, Re, Wright & Niu, NIPS 2011"},
      {"wsp",
       "waves of pipelined replicas: a wave begins when the slowest is at most D waves behind",
       "w <- w - u, u the change of a wave; wave c begins when all have c - D",
       "0",
       "HetPipe: Park et al., ATC 2020, arXiv:2005.14038"},
      {"sandblaster",
       "L-BFGS on all of the data, whose gradient the replicas make portion by portion",
       "w <- w + t d, d the two-loop recursion of g over m pairs (s, y) with s.y > 0; t shortened "
       "until the loss falls as the slope promises",
       "0",
       "Dean et al., NIPS 2012, section 4.2; Nocedal & Wright 2006, section 7.2"},
  };
  return all;
}

Rule make_rule(const RuleContext& context) {
  const proto::Exchange& exchange = replicas(context).exchange();
  const auto rule = [](std::unique_ptr<Admission> admission, std::unique_ptr<Step> step) {
    return Rule{std::move(admission), std::make_unique<Scale>(), std::move(step)};
  };
  switch (exchange.kind_case()) {
    case proto::Exchange::kSynchronous:
      if (exchange.synchronous().reduction() == proto::Synchronous::server) {
        return rule(all_together(exchange.synchronous().backup()),
                    optimizer_step(context, Mean::by_mini_batches));
      }
      break;
    case proto::Exchange::kAveraging:
      return rule(all_together(0), averaging_step());
    case proto::Exchange::kBmuf:
      return rule(all_together(0), bmuf_step(context));
    case proto::Exchange::kEasgd:
      return rule(exchange.easgd().synchronous() ? all_together(0) : std::make_unique<Admission>(),
                  elastic_step(context));
    case proto::Exchange::kDiloco:
      return rule(diloco_admission(exchange.diloco().mode()), outer_step(context));
    case proto::Exchange::kWsp:
      return rule(waves(wave_of(exchange.wsp(), context.in_flight), exchange.wsp().distance()),
                  subtracting_step());
    case proto::Exchange::kHogwild:
    case proto::Exchange::kSandblaster:
    case proto::Exchange::kCustom:
      break;
    case proto::Exchange::kParameterServer:
    case proto::Exchange::KIND_NOT_SET:
      return server_rule(context);
  }
  TROUPE_CHECK(false, "replicas.exchange ", choice_name(exchange), " has no server");
}

}  // namespace troupe
