// The steps of exchanges that are no parameter server: means, elastic averaging, blocks, outer steps.
#include "tests/runtime/schemes/rules/steps.hpp"

namespace exchanges_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("the synchronous mean weighs by mini-batches", "[schemes]") {
  Stream stream{Device{}};
  const auto step =
      step_of({"replicas.exchange=synchronous", "replicas.count=9", "optimizer.rule=sgd"});
  const Tensor base = normal_tensor(stream, 1, {kElements});
  const std::vector<Tensor> g = normals(stream, 2, 9);
  const std::vector<std::int64_t> counts{1, 2, 3, 1, 1, 5, 1, 1, 1};
  const Values got = to_host(apply(stream, *step, base, one_each(g), 0, counts).next);
  Values expected = to_host(base);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const Values x = to_host(g[i]);
    each(x,
         [&](std::size_t j) { expected[j] -= 0.02 * x[j] * static_cast<double>(counts[i]) / 16; });
  }
  check_close("next", got, expected, kRounding);
}

TEST_CASE("averaging after every mini-batch of sgd is the mean gradient", "[schemes]") {
  Stream stream{Device{}};
  const auto averaging = step_of({"replicas.exchange=averaging", "replicas.count=4"});
  const auto synchronous =
      step_of({"replicas.exchange=synchronous", "replicas.count=4", "optimizer.rule=sgd"});
  const Tensor base = normal_tensor(stream, 1, {kElements});
  std::vector<std::vector<Tensor>> models;
  std::vector<std::vector<Tensor>> gradients;
  std::vector<Values> moments;
  for (std::size_t i = 0; i < 4; ++i) {
    const Values w = to_host(base);
    const Values g = gradient(w, static_cast<int>(i), 0);
    std::vector<float> moved(w.size());
    each(w, [&](std::size_t j) { moved[j] = static_cast<float>(w[j] - 0.02 * g[j]); });
    const Tensor moment = normal_tensor(stream, 50 + i, {kElements});
    moments.push_back(to_host(moment));
    models.push_back({tensor_of(stream, moved), moment});
    gradients.push_back({tensor_of(stream, std::vector<float>(g.begin(), g.end()))});
  }
  const Updated averaged = apply(stream, *averaging, base, models);
  const Updated stepped = apply(stream, *synchronous, base, gradients);
  check_close("next", to_host(averaged.next), to_host(stepped.next), kRounding);
  REQUIRE(averaged.moments.size() == 1);
  check_close("moments", to_host(averaged.moments[0]), mean(moments), kRounding);
  // The mean of one is a copy: the replica's own tensor is not handed on.
  const Updated alone = apply(stream, *averaging, base, {{models[0][0]}});
  CHECK(to_host(alone.next) == to_host(models[0][0]));
  CHECK(alone.next.data<float>() != models[0][0].data<float>());
}

TEST_CASE("bmuf filters the movement of a block", "[schemes]") {
  Stream stream{Device{}};
  const auto nesterov = GENERATE(true, false);
  const auto step =
      step_of({"replicas.count=4",
               "replicas.exchange.bmuf.rate=0.8",
               std::string("replicas.exchange.bmuf.nesterov=") + (nesterov ? "true" : "false")});
  const double mu = 0.75;  // 1 - 1/R
  Tensor base = normal_tensor(stream, 1, {kElements});
  Values w = to_host(base);
  Values sent = w;
  Values delta(w.size());
  for (std::uint64_t block = 0; block < 5; ++block) {
    const std::vector<Tensor> models = normals(stream, 2 + block, 4);
    const Values average = mean(on_host(models));
    each(w, [&](std::size_t j) {
      delta[j] = mu * delta[j] + 0.8 * (average[j] - sent[j]);
      w[j] += delta[j];
      sent[j] = nesterov ? w[j] + mu * delta[j] : w[j];
    });
    const Updated updated = apply(stream, *step, base, one_each(models));
    check_close("next", to_host(updated.next), w, {1e-5, 1e-5});
    CHECK(static_cast<bool>(updated.sent) == nesterov);
    check_close("sent", to_host(nesterov ? updated.sent : updated.next), sent, {1e-5, 1e-5});
    base = updated.next;
  }
}

TEST_CASE("easgd's spring and gradient are both of the weights before the mini-batch",
          "[schemes]") {
  Stream stream{Device{}};
  // By hand: x^2 / 2 from 1, two replicas, eta 0.3, alpha 0.45. x' = 0.7 x - 0.45 (x - c), c' = c + 0.9 (x - c).
  const auto step = step_of({"replicas.count=2", "replicas.exchange.easgd.beta=0.9"});
  const std::vector<double> centres{1, 0.73, 0.6355, 0.499825};
  const std::vector<double> replicas{0.7, 0.625, 0.48475, 0.4071625};
  Tensor centre = tensor_of(stream, {1});
  Tensor x = tensor_of(stream, {1});
  for (std::size_t i = 0; i < centres.size(); ++i) {
    const Tensor stepped = tensor_of(stream, {0.7f * x.span<float>()[0]});
    const Updated updated = apply(stream, *step, centre, {{stepped, x}, {stepped, x}});
    check_close("centre", to_host(updated.next), {centres[i]}, kRounding);
    check_close("replica", to_host(updated.answers.at(1)), {replicas[i]}, kRounding);
    centre = updated.next;
    x = updated.answers.at(0);
  }
}

TEST_CASE("easgd moves a replica and the centre by the same amount", "[schemes]") {
  Stream stream{Device{}};
  const auto count = GENERATE(std::size_t{1}, std::size_t{4}, std::size_t{9});
  const auto step = step_of({"replicas.count=9",
                             "replicas.exchange.easgd.beta=0.9",
                             "replicas.exchange.easgd.order=sequential"});
  const Tensor base = normal_tensor(stream, 1, {kElements});
  const std::vector<Tensor> x = normals(stream, 2, count);
  const Updated updated = apply(stream, *step, base, one_each(x));
  const Values centre = to_host(base);
  Values moved = centre;
  Values before = centre;
  Values after = to_host(updated.next);
  REQUIRE(updated.answers.size() == count);
  for (std::size_t i = 0; i < count; ++i) {
    const Values own = to_host(x[i]);
    const Values answer = to_host(updated.answers[i]);
    Values expected = own;
    each(own, [&](std::size_t j) {
      const double d = 0.1 * (own[j] - centre[j]);  // alpha = beta / R
      expected[j] -= d;
      moved[j] += d;
      before[j] += own[j];
      after[j] += answer[j];
    });
    check_close("answer", answer, expected, kRounding);
  }
  check_close("centre", to_host(updated.next), moved, kRounding);
  check_close("sum of all", after, before, {6e-6, 1e-6});  // a rounding of each
}

TEST_CASE("diloco's outer steps agree with their formulas", "[schemes]") {
  Stream stream{Device{}};
  const std::string x = "replicas.exchange.diloco.";
  const double eps = 0.6, mu = 0.8;
  const std::vector<std::string> numbers{x + "rate=0.6", x + "momentum=0.8", "replicas.count=4"};
  const auto with = [&](const std::string& mode) {
    std::vector<std::string> all = numbers;
    all.push_back(x + mode);
    return step_of(all);
  };

  SECTION("synchronous, streaming and by quorum: Nesterov on the mean") {
    const std::string mode = GENERATE("mode=synchronous", "mode=streaming", "mode=quorum");
    const auto step = with(mode);
    Tensor base = normal_tensor(stream, 1, {kElements});
    NesterovLoop outer{to_host(base), {}};
    for (std::uint64_t round = 0; round < 5; ++round) {
      const std::vector<Tensor> changes = normals(stream, 2 + round, 3);
      std::vector<Values> weighted = on_host(changes);
      const std::vector<std::int64_t> counts{10, 50, 20};
      for (std::size_t i = 0; i < 3; ++i) {
        each(weighted[i],
             [&](std::size_t j) { weighted[i][j] *= 3.0 * static_cast<double>(counts[i]) / 80; });
      }
      outer.step(eps, mu, mean(weighted));
      base = apply(stream, *step, base, one_each(changes), 0, counts).next;
      check_close("next", to_host(base), outer.w, {1e-5, 1e-5});
    }
  }

  SECTION("asynchronous: a share of R at each arrival") {
    const bool momentum = GENERATE(true, false);
    const auto step =
        with(momentum ? "mode.asynchronous.outer=nesterov" : "mode.asynchronous.outer=sgd");
    Tensor base = normal_tensor(stream, 1, {kElements});
    NesterovLoop outer{to_host(base), {}};
    for (std::uint64_t round = 0; round < 5; ++round) {
      const Tensor change = normal_tensor(stream, 2 + round, {kElements});
      Values share = to_host(change);
      each(share, [&](std::size_t j) { share[j] /= 4; });
      outer.step(eps, momentum ? mu : 0, share);
      base = apply(stream, *step, base, {{change}}).next;
      check_close("next", to_host(base), outer.w, {1e-5, 1e-5});
    }
  }

  SECTION("delayed Nesterov: momentum with every R-th arrival") {
    const auto c = GENERATE(0.0, 0.2);
    const auto step = with("mode.asynchronous.activation=" + std::to_string(c));
    Tensor base = normal_tensor(stream, 1, {kElements});
    Values w = to_host(base);
    Values m(w.size());
    Values sum(w.size());
    for (std::int64_t t = 0; t < 11; ++t) {
      const Tensor change = normal_tensor(stream, static_cast<std::uint64_t>(2 + t), {kElements});
      const Values d = to_host(change);
      const bool ticks = (t + 1) % 4 == 0;
      each(w, [&](std::size_t j) {
        sum[j] += d[j];
        if (ticks) {
          m[j] = mu * m[j] + sum[j] / 4;
          w[j] -= eps * ((1 - c * 4 + c) * mu * m[j] + d[j] / 4);
          sum[j] = 0;
        } else {
          w[j] -= eps * (c * mu * m[j] + d[j] / 4);
        }
      });
      base = apply(stream, *step, base, {{change}}, t).next;
      check_close("next", to_host(base), w, {1e-5, 1e-5});
    }
  }

  SECTION("delayed Nesterov with one replica is Nesterov, in every bit") {
    const auto delayed = step_of({x + "mode=asynchronous", x + "rate=0.6"});
    const auto plain = step_of({x + "mode.asynchronous.outer=nesterov", x + "rate=0.6"});
    const auto synchronous = step_of({x + "mode=synchronous", x + "rate=0.6"});
    Tensor a = normal_tensor(stream, 1, {kElements});
    Tensor b = normal_tensor(stream, 1, {kElements});
    Tensor s = normal_tensor(stream, 1, {kElements});
    for (std::int64_t t = 0; t < 5; ++t) {
      const Tensor change = normal_tensor(stream, static_cast<std::uint64_t>(2 + t), {kElements});
      a = apply(stream, *delayed, a, {{change}}, t).next;
      b = apply(stream, *plain, b, {{change}}, t).next;
      s = apply(stream, *synchronous, s, {{change}}, t).next;
      CHECK(to_host(a) == to_host(b));
      CHECK(to_host(a) == to_host(s));
    }
  }
}

}  // namespace exchanges_test
