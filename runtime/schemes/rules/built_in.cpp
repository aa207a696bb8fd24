// The rules that come with Troupe. A new one is an entry here, a file beside this one for the parts
// that are its own, and a line in the experiment's definition.
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/horizon.hpp"
#include "runtime/schemes/optimizer_scheme.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>

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

const proto::DualAveraging& dual_averaging_options(const RuleContext& c) {
  const auto& r = replicas(c);
  return r.step().has_dual_averaging() ? r.step().dual_averaging() : r.rule().dual_averaging();
}

/// Each push finds R (delay + 1) - 1 others before it; who waits for its update meets those of the other
/// updates alone.
double softsync_lag(const proto::Experiment& e, double delay) {
  const proto::Softsync& options = softsync_options(e.replicas());
  const auto R = static_cast<double>(e.replicas().count());
  const double c = std::max<double>(1, static_cast<double>(e.replicas().count() / options.n()));
  return (R * (delay + 1) - (options.wait() ? c : 1)) / c;
}

/// lwp's: what it sends is met at the update.
std::unique_ptr<Step> look_ahead_step(const RuleContext& c) {
  const bool paper = replicas(c).horizon() == proto::Replicas::paper;
  const std::int64_t ahead = paper ? c.replicas - 1 : lag_of(c.experiment).of(c.delay);
  return momentum_step(c, reach_of(ReachKind::linear, ahead));
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

/// What a step with a momentum of its own may take the place of.
const std::vector<std::string> kMomentum{"sgd", "momentum", "nesterov"};

/// What the others do in a mini-batch is met in the one after it.
double met_a_mini_batch_later(const proto::Experiment& e) {
  return 2 * static_cast<double>(e.replicas().count());
}

/// Replicas move by themselves and push their changes (SSP, ESSP).
void by_clocks(Link& link, const proto::Experiment& e, const proto::Ssp& options, bool eager) {
  link.travel = Travel::change;
  link.steps = true;
  link.bound = options.bound();
  link.eager = eager;
  link.rate_stride = e.replicas().count();
  link.run_rate = true;
}

void by_slim(Link& link, const proto::Experiment& /*e*/) {
  link.travel = Travel::slim;
  link.steps = false;
  link.rate_stride = 1;
  link.run_rate = false;
}

/// No more parts than there are replicas.
Result<void> check_softsync(const proto::Experiment& e) {
  const proto::Replicas& r = e.replicas();
  const bool admits =
      r.admit().has_softsync() || (r.admit().has_by_rule() && r.rule().has_softsync());
  const std::int64_t n = softsync_options(r).n();
  if (admits && n > r.count()) {
    return Error{ErrorKind::usage,
                 concat("replicas.",
                        r.admit().has_softsync() ? "admit" : "rule",
                        ".softsync.n: ",
                        n,
                        " is more than replicas.count ",
                        r.count(),
                        ", where it is plain asgd already")};
  }
  return {};
}

Result<void> check_dc_asgd(const proto::Experiment& e) {
  const proto::Replicas& r = e.replicas();
  const bool scales = r.scale().has_dc_asgd();
  const double lambda = (scales ? r.scale().dc_asgd() : r.rule().dc_asgd()).lambda();
  if (lambda < 0 && lambda != -1) {
    return Error{ErrorKind::usage,
                 concat("replicas.",
                        scales ? "scale" : "rule",
                        ".dc_asgd.lambda: ",
                        lambda,
                        "; right are -1 (for the variant's own) and 0 or more")};
  }
  return {};
}

/// It divides by the gradients' deviation, and optimizers that do so themselves undo that.
Result<void> check_fasgd(const proto::Experiment& e) {
  const proto::Replicas& r = e.replicas();
  const bool scales = r.scale().has_fasgd() || (r.scale().has_by_rule() && r.rule().has_fasgd());
  const RuleScheme& step = step_of(r);
  const std::string& optimizer = optimizer_scheme(e.optimizer()).info.name;
  const bool adagrad = step.info.name == "adagrad";
  if (!scales || step.own_momentum || (!adagrad && optimizer_scheme(e.optimizer()).plain)) {
    return {};
  }
  return Error{ErrorKind::usage,
               concat(adagrad ? "replicas.step: adagrad" : "optimizer.rule: " + optimizer,
                      " divides a gradient by its own size, which undoes fasgd's division by its "
                      "deviation; right are sgd, momentum and nesterov, or replicas.scale "
                      "staleness_aware, which divides the rate")};
}

Result<void> check_dana_dc(const proto::Experiment& e) {
  const std::string step = choice_name(e.replicas().step());
  if (e.replicas().rule().has_dana_dc() && step != "by_rule" && step != "dana_zero" &&
      !step.empty()) {
    return Error{ErrorKind::usage,
                 concat("replicas.step: dana_dc is dana_zero with a correction; for the correction "
                        "with ",
                        step,
                        " use replicas.rule dc_asgd")};
  }
  return {};
}

}  // namespace

std::vector<RuleScheme> built_in_rules() {
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
      {.info = {.name = "asgd",
                .summary = "each gradient on arrival, by the experiment's optimizer",
                .paper = "Downpour: Dean et al., NIPS 2012"},
       .equations = "w <- w - eta opt(g)",
       .memory = "the optimizer's moments",
       .applies_each = true},
      {.info =
           {.name = "heavy_ball",
            .summary =
                "on arrival, one velocity at the server; in-flight gradients meet weights that it "
                "has moved on",
            .paper = "Polyak 1964, applied on arrival"},
       .equations = "v <- gamma v + g; w <- w - eta v",
       .memory = "1",
       .step = velocity({}),
       .own_momentum = true,
       .optimizers = kMomentum},
      {.info = {.name = "nag",
                .summary = "on arrival, one velocity at the server, whose look-ahead point is sent",
                .paper = "NAG-ASGD, the baseline of Hakimi et al. 2019, arXiv:1907.11612"},
       .equations = "v <- gamma v + g; w <- w - eta v; sent w - eta gamma v",
       .memory = "1, and the point sent",
       .step = velocity({ReachKind::geometric, 1}),
       .own_momentum = true,
       .optimizers = kMomentum,
       .sends_elsewhere = true},
      {.info = {.name = "multi",
                .summary =
                    "on arrival, a velocity for each replica, so that none mixes with another's",
                .paper = "Multi-ASGD, an ablation of Hakimi et al. 2019, arXiv:1907.11612"},
       .equations = "v_i <- gamma v_i + g; w <- w - eta v_i",
       .memory = "R",
       .step = multi_step,
       .own_momentum = true,
       .optimizers = kMomentum,
       .one_at_a_time = true,
       .sends_elsewhere = true},
      {.info = {.name = "adagrad",
                .summary =
                    "on arrival, a rate for each parameter: bears many replicas without momentum",
                .paper = "Downpour: Dean et al., NIPS 2012; Duchi et al. 2011"},
       .equations = "s <- s + g^2; w <- w - eta g / (sqrt(s) + epsilon)",
       .memory = "1",
       .step = adagrad_step,
       .optimizers = {"sgd", "momentum", "adagrad"}},
      {.info = {.name = "softsync",
                .summary = "the mean of the first c gradients, from whomever; staleness about n",
                .paper = "n-softsync: Gupta et al. 2015, arXiv:1509.04210",
                .check = check_softsync},
       .equations = "c = max(1, floor(living / n)); w <- w - eta opt(1/c sum g)",
       .memory = "the optimizer's moments",
       .admission = make_softsync,
       .pushes =
           [](const proto::Experiment& e) {
             return std::max<std::int64_t>(
                 1, e.replicas().count() / softsync_options(e.replicas()).n());
           },
       .staleness =
           [](const proto::Experiment& e) {
             return static_cast<double>(
                 std::min(e.replicas().count(), softsync_options(e.replicas()).n()));
           },
       .lag = softsync_lag},
      {.info =
           {.name = "ssp",
            .summary =
                "replicas move by themselves and push their changes; nobody begins a mini-batch "
                "that the slowest is more than s behind",
            .paper = "stale synchronous parallel: Ho et al., NIPS 2013"},
       .equations = "w <- w - u, u = w_before - w_after; clock c begins when all have c - s",
       .memory = "0",
       .admission =
           [](const RuleContext& c) {
             return stale_synchronous(replicas(c).rule().ssp().bound(), false);
           },
       .step = subtracting,
       .link =
           [](Link& link, const proto::Experiment& e) {
             by_clocks(link, e, e.replicas().rule().ssp(), false);
           },
       .staleness = met_a_mini_batch_later},
      {.info = {.name = "essp",
                .summary =
                    "ssp, whose server sends new weights unasked when the slowest clock advances",
                .paper = "Dai et al., AAAI 2015, arXiv:1410.8043"},
       .equations = "as ssp",
       .memory = "0",
       .admission =
           [](const RuleContext& c) {
             return stale_synchronous(replicas(c).rule().essp().bound(), true);
           },
       .step = subtracting,
       .link =
           [](Link& link, const proto::Experiment& e) {
             by_clocks(link, e, e.replicas().rule().essp(), true);
           },
       .staleness = met_a_mini_batch_later},
      {.info = {.name = "staleness_aware",
                .summary = "on arrival, each gradient's learning rate divided by its staleness",
                .paper = "Zhang, Gupta, Lian & Liu, IJCAI 2016, arXiv:1511.05950"},
       .equations = "w <- w - eta / max(1, tau) opt(g); of several: the rate is the mean of eta / "
                    "max(1, tau), the gradient the mean weighed by it",
       .memory = "the optimizer's moments",
       .scale = [](const RuleContext&) { return staleness_division(); },
       .bears_delay = true},
      {.info =
           {.name = "gap_aware",
            .summary =
                "on arrival, divided by how far the weights have moved, in steps at the largest "
                "rate",
            .paper = "Barkai, Hakimi & Schuster, ICLR 2020, arXiv:1909.10802"},
       .equations =
           "w <- w - eta opt(g / (1 + |a - w_read| / C)), a = w, or where the sender's own "
           "momentum leads; C_j = largest rate sqrt(mean (step_j / rate)^2), or the mean "
           "size of a step",
       .memory = "what replicas read (up to R), 1 if per parameter, and the optimizer's moments",
       .scale = [](const RuleContext& c) { return gap_damping(c, gap_aware_options(c)); },
       .bears_delay = true,
       .corrects = true},
      {.info = {.name = "dc_asgd",
                .summary =
                    "on arrival, corrected to first order for how far the weights have moved",
                .paper = "Zheng et al., ICML 2017, arXiv:1609.08326",
                .check = check_dc_asgd},
       .equations = "constant: g + lambda g^2 (w - w_read); adaptive: lambda / sqrt(mean g^2); "
                    "absolute: |g| for g^2",
       .memory = "what replicas read (up to R), 1 if adaptive, and the optimizer's moments",
       .scale = [](const RuleContext& c) { return delay_compensation(c, dc_asgd_options(c)); },
       .corrects = true},
      {.info = {.name = "fasgd",
                .summary =
                    "on arrival, divided by the deviation of the parameter's gradients and the "
                    "staleness",
                .paper = "Odena 2016, arXiv:1601.04033",
                .check = check_fasgd},
       .equations = "n <- gamma n + (1-gamma) g^2; b <- gamma b + (1-gamma) g; v <- beta v + "
                    "(1-beta) sqrt(n - b^2 + epsilon); w <- w - eta opt(g / (v max(1, tau)))",
       .memory = "3, and the optimizer's moments",
       .scale = [](const RuleContext& c) { return deviation_division(c, fasgd_options(c)); },
       .bears_delay = true},
      {.info = {.name = "dana_zero",
                .summary = "a velocity for each replica; the point where all of them lead is sent",
                .paper = "Hakimi et al. 2019, arXiv:1907.11612"},
       .equations = "v_i <- gamma v_i + g; w <- w - eta v_i; sent w - gamma eta sum_j v_j (by the "
                    "server's rate), w - gamma sum_j eta_j v_j (by the senders')",
       .memory = "R + 1, and the point sent",
       .step = dana,
       .bears_delay = true,
       .own_momentum = true,
       .optimizers = kMomentum,
       .one_at_a_time = true,
       .sends_elsewhere = true},
      {.info = {.name = "dana_slim",
                .summary =
                    "dana_zero with the velocities at the replicas: the server keeps nothing",
                .paper = "Hakimi et al. 2019, arXiv:1907.11612"},
       .equations = "replica: v' = gamma v + g, pushes u = eta (gamma v' + g) + (eta - eta_prev) "
                    "gamma v; server: w <- w - u. By the server's rate: u = gamma v' + g; w <- w - "
                    "eta u",
       .memory =
           "0 (1 at each replica); so that of a replica that dies the step it looked ahead stays "
           "in the weights, eta gamma v once, which dana_zero takes back",
       .step = slim_step,
       .link = by_slim,
       .bears_delay = true,
       .own_momentum = true,
       .optimizers = kMomentum,
       .one_at_a_time = true,
       .sends_elsewhere = true,
       .any_admission = true},
      {.info = {.name = "dana_dc",
                .summary = "dana_zero with dc_asgd's correction from the point that was sent",
                .paper = "Hakimi et al. 2019, arXiv:1907.11612",
                .check = check_dana_dc},
       .equations = "g + lambda g^2 (w - w_sent) in place of g; then dana_zero",
       .memory = "R + 1, and the points sent (up to R)",
       .scale = make_dana_dc_scale,
       .step = dana,
       .bears_delay = true,
       .corrects = true,
       .own_momentum = true,
       .optimizers = kMomentum,
       .one_at_a_time = true,
       .sends_elsewhere = true},
      {.info = {.name = "lwp",
                .summary =
                    "one velocity at the server; the point as far ahead along it as gradients "
                    "are late is sent",
                .paper = "linear weight prediction: Kosson et al., MLSys 2021, arXiv:2003.11666"},
       .equations = "v <- gamma v + g; w <- w - eta v; sent w - (R (d+1) - 1) eta v, w - (R-1) eta "
                    "v with replicas.horizon=paper",
       .memory = "1, and the point sent",
       .step = look_ahead_step,
       .own_momentum = true,
       .optimizers = kMomentum,
       .sends_elsewhere = true},
      {.info = {.name = "smega2",
                .summary =
                    "one velocity that ticks every R gradients, and its look-ahead by R of them",
                .paper = "Cohen, Hakimi & Schuster, ICPP 2022"},
       .equations =
           "w <- w - eta (g + gamma v); A <- A + g; each R-th: v <- gamma v + A/R, A <- 0; "
           "sent w - eta gamma ((R + c (gamma-1)) v + c/R A), c gradients since",
       .memory = "2, and the point sent",
       .step = smega2_step,
       .own_momentum = true,
       .optimizers = kMomentum,
       .one_at_a_time = true,
       .sends_elsewhere = true},
      {.info = {.name = "ormo",
                .summary = "momentum in the order of the gradients' iterations, in buckets of R",
                .paper = "Shi et al., NeurIPS 2024, arXiv:2407.19234"},
       .equations =
           "bucket opens: w <- w - eta gamma v, v <- gamma v; a gradient d buckets late: v "
           "<- v + gamma^d g, w <- w - eta (1 - gamma^(d+1)) / (1 - gamma) g",
       .memory = "1",
       .step = ormo_step,
       .own_momentum = true,
       .optimizers = kMomentum,
       .one_at_a_time = true,
       .counts_each = true,
       .sends_elsewhere = true},
      {.info =
           {.name = "ringmaster",
            .summary =
                "on arrival; a gradient as late as the bound is dropped and its replica gets the "
                "newest weights",
            .paper = "Maranjyan, Tyurin & Richtarik, ICML 2025, arXiv:2501.16168"},
       .equations = "tau < bound: w <- w - eta opt(g)",
       .memory = "the optimizer's moments",
       .admission = make_ringmaster},
      {.info = {.name = "delayed",
                .summary = "the replicas in cyclic order: a fixed staleness of R - 1",
                .paper = "Agarwal & Duchi, NIPS 2011, arXiv:1104.5525"},
       .equations = "w <- w - eta opt(g(w of R - 1 updates ago))",
       .memory = "the optimizer's moments",
       .admission = [](const RuleContext&) { return cyclic(); },
       .applies_each = true,
       .counts_each = true},
      {.info = {.name = "dual_averaging",
                .summary = "delayed, by dual averaging: a step from the start along the sum of all "
                           "gradients, of a rate that falls by itself",
                .paper = "Agarwal & Duchi, NIPS 2011, arXiv:1104.5525"},
       .equations =
           "z <- z + g; w <- w_0 - z / (L + c sqrt(t + tau)), t = 1, 2, ... updates, tau = R "
           "(d+1) - 1",
       .memory = "2: z and w_0",
       .admission = [](const RuleContext&) { return cyclic(); },
       .step =
           [](const RuleContext& c) { return dual_averaging_step(c, dual_averaging_options(c)); },
       .applies_each = true,
       .own_momentum = true,
       .optimizers = {"sgd"},
       .counts_each = true,
       .sends_elsewhere = true}};
}

}  // namespace troupe
