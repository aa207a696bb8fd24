// Deep gradient compression in whole runs, against the paper's equations in double (Lin et al. 2018, with R times its
// gradient, which carries 1 / R; the authors' program for weight decay and Nesterov's form):
//   g <- g min(1, R^(1/2) clip / |g|) + lambda w;  u <- m u + g;  v <- v + u, or v + g + m u
// Gradients are those that the stages of the run push; everything is sent, unless a test says so.
#include "apps/topologies/blueprint.hpp"
#include "messages/weights.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace dgc_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int kReplicas = 4;
constexpr double kRate = 0.05;
constexpr double kMomentum = 0.9;

using Doubles = std::vector<double>;

/// Of one replica and mini-batch: by chunk and slice.
using Gradient = std::map<std::int32_t, std::vector<Doubles>>;

struct Equations {
  double bound = 0;  // R^(1/2) clip; 0: none
  bool by_chunk = false;
  double decay = 0;
  bool nesterov = false;
  bool masking = false;  // then of a velocity that was sent nothing is left
};

Options together(const Options& more) {
  return joined({concat("replicas.count=", kReplicas),
                 "replicas.exchange=synchronous",
                 "optimizer.rule=sgd",
                 concat("optimizer.learning_rate=", kRate),
                 "replicas.codec.up.dgc.density=1",
                 "replicas.codec.up.dgc.masking=false",
                 "stop.updates=60"},
                more);
}

BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("16,14"), set);
}

Doubles doubles(const Tensor& tensor) {
  const auto all = tensor.span<float>();
  return {all.begin(), all.end()};
}

double squares(const std::vector<Doubles>& slices) {
  double sum = 0;
  for (const Doubles& slice : slices) {
    for (const double x : slice) {
      sum += x * x;
    }
  }
  return sum;
}

struct Seen {
  Outcome out;
  std::map<std::int64_t, std::map<std::int32_t, Gradient>> pushes;  // by mini-batch and replica
};

Seen watched(const proto::Experiment& e) {
  Seen seen;
  seen.out = run(e, {.lose = [&](ActorId, const Message& message) {
                   if (const auto* push = get_if<Push>(&message)) {
                     const Stamp& at = push->stamp;
                     auto& slices = seen.pushes[at.batch][at.replica][at.chunk];
                     slices.clear();
                     for (const Tensor& slice : push->gradient) {
                       slices.push_back(doubles(slice));
                     }
                   }
                   return false;
                 }});
  INFO(seen.out.ending.cause);
  REQUIRE(seen.out.ending.exit_code == 0);
  return seen;
}

/// One replica's velocities and what it has gathered of them.
struct Replica {
  Gradient u;
  Gradient v;
};

/// How many gradients were clipped, of all.
struct Clipped {
  int some = 0;
  int all = 0;
};

void clip(Gradient& g, const Equations& as, Clipped& clipped) {
  double whole = 0;
  for (const auto& [chunk, slices] : g) {
    whole += squares(slices);
  }
  for (auto& [chunk, slices] : g) {
    const double norm = std::sqrt(as.by_chunk ? squares(slices) : whole);
    const double by = as.bound > 0 ? std::min(1.0, as.bound / norm) : 1;
    clipped.some += by < 1 ? 1 : 0;
    ++clipped.all;
    for (Doubles& slice : slices) {
      for (double& x : slice) {
        x *= by;
      }
    }
  }
}

/// What the replica sends of a gradient, which it takes from.
double sent(double g, double& u, double& v, const Equations& as) {
  u = kMomentum * u + g;
  v += as.nesterov ? g + kMomentum * u : u;
  const double all = std::exchange(v, 0);
  u = as.masking ? 0 : u;
  return all;
}

/// The weights that the equations lead to.
Gradient led_to(const proto::Experiment& e,
                const Seen& seen,
                const Equations& as,
                Clipped& clipped) {
  const auto blueprint = make_blueprint(e);
  REQUIRE(blueprint);
  Stream stream{Device{}};
  Gradient w;
  for (std::int32_t c = 0; c < blueprint->schedule->chunks; ++c) {
    for (const Tensor& slice : starting_slices(stream, *blueprint, static_cast<std::size_t>(c))) {
      w[c].push_back(doubles(slice));
    }
  }
  std::vector<Replica> replicas(kReplicas);
  for (Replica& replica : replicas) {
    for (const auto& [chunk, slices] : w) {
      for (const Doubles& slice : slices) {
        replica.u[chunk].emplace_back(slice.size());
        replica.v[chunk].emplace_back(slice.size());
      }
    }
  }
  for (std::int64_t batch = 0; batch < static_cast<std::int64_t>(seen.out.applied.size());
       ++batch) {
    if (!seen.pushes.contains(batch) || seen.pushes.at(batch).size() < kReplicas) {
      break;  // the run was over
    }
    Gradient step = w;
    for (auto& [chunk, slices] : step) {
      for (Doubles& slice : slices) {
        std::fill(slice.begin(), slice.end(), 0);
      }
    }
    for (const auto& [r, pushed] : seen.pushes.at(batch)) {
      Gradient g = pushed;
      clip(g, as, clipped);
      Replica& replica = replicas[static_cast<std::size_t>(r)];
      for (auto& [chunk, slices] : step) {
        for (std::size_t s = 0; s < slices.size(); ++s) {
          for (std::size_t i = 0; i < slices[s].size(); ++i) {
            slices[s][i] += sent(g.at(chunk)[s][i] + as.decay * w[chunk][s][i],
                                 replica.u[chunk][s][i],
                                 replica.v[chunk][s][i],
                                 as) /
                            kReplicas;
          }
        }
      }
    }
    for (auto& [chunk, slices] : w) {
      for (std::size_t s = 0; s < slices.size(); ++s) {
        for (std::size_t i = 0; i < slices[s].size(); ++i) {
          slices[s][i] -= kRate * step[chunk][s][i];
        }
      }
    }
  }
  return w;
}

/// Runs `set`, and checks that it ends where the equations do.
Clipped check(const Options& set, const Equations& as) {
  const BoxedExperiment e = task(together(set));
  const Seen seen = watched(e);
  Clipped clipped;
  const Gradient due = led_to(e, seen, as, clipped);
  double farthest = 0;
  double largest = 0;
  for (const auto& [chunk, slices] : due) {
    const Weights& got = seen.out.ending.weights.at(static_cast<std::size_t>(chunk));
    REQUIRE(got.size() == slices.size());
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const Doubles values = doubles(got[s].values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        farthest = std::max(farthest, std::abs(values[i] - slices[s][i]));
        largest = std::max(largest, std::abs(values[i]));
      }
    }
  }
  CHECK(farthest < 1e-5);  // some rounding of float32 in each step
  CHECK(largest > 0.1);
  return clipped;
}

const Options kFlushed{"pipeline.stages=3", "pipeline.schedule=gpipe", "pipeline.micro_batches=2"};
const Options kAsynchronous{
    "pipeline.stages=2", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"};

}  // namespace

TEST_CASE("the bound of a local gradient is R^(1/2) times clip_norm, the lesser of two",
          "[system][codecs]") {
  const auto bound = [](const Options& more) {
    return clip_norm_of(task(together(more)));
  };
  CHECK(bound({}) == 0);
  CHECK(bound({"replicas.codec.up.dgc.clip_norm=0.6"}) == Approx(1.2));
  CHECK(bound({"replicas.codec.up.dgc.clip_norm=0.6", "optimizer.clip_norm=2"}) == Approx(1.2));
  CHECK(bound({"replicas.codec.up.dgc.clip_norm=0.6", "optimizer.clip_norm=1"}) == Approx(1));
  CHECK(bound({"optimizer.clip_norm=3"}) == Approx(3));
  CHECK(bound({"replicas.codec.up.dgc.clip_norm=0.6", "replicas.codec.up=fp16"}) == 0);
}

TEST_CASE("a whole replica's gradient is clipped, whatever slices and chunks it is in",
          "[system][codecs]") {
  const Options clips{"replicas.codec.up.dgc.clip_norm=0.3"};
  for (const Options& cut : {Options{},
                             Options{"replicas.shards=2"},
                             kFlushed,
                             joined(kFlushed, {"replicas.shards=2"})}) {
    INFO(cut.size() << " settings");
    const Clipped clipped = check(joined(clips, cut), {.bound = 0.6});
    CHECK(clipped.some > 10);
    CHECK(clipped.some < clipped.all);
  }
}

TEST_CASE("chunks that do not wait for each other clip each by itself", "[system][codecs]") {
  for (const Options& shards : {Options{}, Options{"replicas.shards=2"}}) {
    const Clipped clipped =
        check(joined(joined({"replicas.codec.up.dgc.clip_norm=0.2"}, kAsynchronous), shards),
              {.bound = 0.4, .by_chunk = true});
    CHECK(clipped.some > 10);
    CHECK(clipped.some < clipped.all);
  }
}

TEST_CASE("weight decay goes through the velocity, and Nesterov's form looks ahead",
          "[system][codecs]") {
  const Options decay{"optimizer.weight_decay=0.05"};
  const Options nesterov{"replicas.codec.up.dgc.nesterov=true"};
  for (const Options& cut : {Options{}, kFlushed, kAsynchronous}) {
    INFO(cut.size() << " settings");
    check(cut, {});
    check(joined(decay, cut), {.decay = 0.05});
    check(joined(nesterov, cut), {.nesterov = true});
    check(joined(joined(decay, nesterov), cut), {.decay = 0.05, .nesterov = true});
    check(joined(joined(decay, {"replicas.codec.up.dgc.masking=true"}), cut),
          {.decay = 0.05, .masking = true});
  }
  check(joined(decay, {"replicas.codec.up.dgc.clip_norm=0.3"}), {.bound = 0.6, .decay = 0.05});
}

TEST_CASE("with everything sent dgc is one's own momentum at the servers, with weight decay, too",
          "[system][codecs]") {
  const Options own{"replicas.codec.up=none", concat("optimizer.momentum=", kMomentum)};
  for (const char* decay : {"optimizer.weight_decay=0", "optimizer.weight_decay=0.05"}) {
    for (const char* rule : {"momentum", "nesterov"}) {
      INFO(decay << " " << rule);
      const Options nesterov{concat("replicas.codec.up.dgc.nesterov=",
                                    rule == std::string("nesterov") ? "true" : "false")};
      const auto coded = run(task(together(joined({decay}, nesterov)))).weights;
      const auto plain =
          run(task(together(joined({decay, concat("optimizer.rule=", rule)}, own)))).weights;
      CHECK(relative_distance(coded, plain) < 1e-4);
    }
  }
}

TEST_CASE("replicas that step by themselves between fetches decay once", "[system][codecs]") {
  // The servers' weights are those of the messages; a replica's own steps are of its own copy.
  const Options set{"replicas.exchange.parameter_server.n_fetch=3",
                    "optimizer.weight_decay=0.5",
                    "replicas.codec.up.dgc.momentum=0",
                    "stop.updates=200"};
  const auto norm = [&](const Options& more) {
    double sum = 0;
    const Outcome out = run(task(together(joined(set, more))));
    REQUIRE(out.ending.exit_code == 0);
    for (const float x : out.weights) {
      sum += static_cast<double>(x) * static_cast<double>(x);
    }
    return std::sqrt(sum);
  };
  CHECK(norm({}) == Approx(norm({"replicas.codec.up=none"})).epsilon(0.05));
}

}  // namespace dgc_test
