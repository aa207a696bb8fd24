// What a replica's exchange sends to the servers, when, and for what it stands: each fact of the Link.
#include "tests/actors/exchange/upstream_fixture.hpp"

namespace upstream_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// The replica's own optimizer makes steps; `travel` goes up after every `period` of them.
Link by_itself(Travel travel, std::int64_t period, const LocalLink& how = {}) {
  Link link;
  link.travel = travel;
  link.push_every = period;
  link.kind = how;
  return link;
}

}  // namespace

TEST_CASE("a gradient travels as it is, and the next step is the servers' answer", "[actors]") {
  Replica r(Link{});
  CHECK(r.exchange.facts().gradient_travels);
  CHECK_FALSE(r.exchange.facts().pins_steps);
  CHECK_FALSE(r.prepare(7, 0.25));
  for (const std::size_t s : {0, 1}) {
    const Upload m = r.upload(s);
    CHECK(m.stamp.replica == 3);
    CHECK(m.stamp.chunk == 1);
    CHECK(m.stamp.batch == 0);
    CHECK(m.sequence == 1);
    CHECK(m.slice == s);
    CHECK(m.answer);
    CHECK(value_of(m) == 7);
    CHECK(m.contribution.mini_batches == 1);
    CHECK(m.contribution.rate == 1);       // of the weights that it had read
    CHECK(m.contribution.factor == 0.25);  // clipping is the server's to multiply in
    CHECK(m.read_version == 0);
    REQUIRE(m.reads.size() == 1);
    CHECK(m.reads[0].forward_version == 0);
  }
  CHECK(r.step() == 0);
  CHECK(r.exchange.waits_for() == "the servers' answer after mini-batch 0");
  r.answer(Replica::answer_of(1, 1, 4, 40));
  CHECK(r.step() == 0);
  r.answer(Replica::answer_of(1, 0, 5, 50));
  REQUIRE(r.step() == 1);
  CHECK(r.newest() == Floats{50, 40});
  CHECK(r.exchange.waits_for().empty());
  CHECK(r.exchange.label(0).version == 5);  // each slice has the label of its own server
  CHECK(r.exchange.label(1).version == 4);
  CHECK(r.exchange.label(1).rate == 0.2);
  r.mini_batch();
  CHECK(r.upload(0).sequence == 2);
  CHECK(r.upload(0).read_version == 5);
  CHECK(r.upload(1).read_version == 4);
  CHECK(r.upload(0).contribution.rate == Approx(1.0 / 6));
}

TEST_CASE("predictions of the servers come with their answer", "[actors]") {
  Replica r(Link{}, 1);
  r.mini_batch();
  Answer m = Replica::answer_of(1, 0, 2, 20);
  m.weights.push_back({.values = filled(25), .version = 2, .reach = {ReachKind::linear, 3}});
  r.answer(std::move(m));
  REQUIRE(r.step() == 1);
  REQUIRE(r.host.installed[0].predictions.size() == 1);
  CHECK(first_of(r.host.installed[0].predictions[0].front().values) == 25);
  CHECK(r.host.installed[0].predictions[0].front().reach == Reach{ReachKind::linear, 3});
}

TEST_CASE("what is not sent accrues, and stands for as many mini-batches", "[actors]") {
  Link link;
  link.push_every = 2;
  link.kind = LocalLink{.fetch_every = 4};
  Replica r(link, 1);
  const auto run = [&](float residual) {
    const auto job = r.prepare(1, 0.5);
    REQUIRE(job);
    CHECK(job->steps);
    CHECK(job->outbound.accrue);
    CHECK(job->outbound.travel == Travel::gradient);
    Applied made = Replica::made_of(*job, static_cast<float>(r.step() + 1), 9);
    made.residuals = {{.values = filled(residual)}};
    r.exchange.applied(std::move(made), 0, r.fx);
    return *job;
  };
  const Apply first = run(31);
  CHECK(first.outbound.residuals.empty());
  CHECK_FALSE(first.outbound.made);
  CHECK(r.uploads(0).empty());
  REQUIRE(r.step() == 1);
  r.now = 5;
  const Apply second = run(32);
  REQUIRE(second.outbound.residuals.size() == 1);
  CHECK(first_of(second.outbound.residuals[0].values) == 31);
  CHECK(second.outbound.made);
  const Upload m = r.upload(0);
  CHECK_FALSE(m.answer);
  CHECK(value_of(m) == 9);
  CHECK(m.contribution.mini_batches == 2);
  CHECK(m.contribution.factor == 1);  // it is in the sum
  CHECK(m.stamp.batch == 1);
  CHECK(m.read_time == 0);  // of the older of the two
  CHECK(m.reads.size() == 2);
  REQUIRE(r.step() == 2);
  const Apply third = run(33);
  CHECK(first_of(third.outbound.residuals.at(0).values) == 32);
  CHECK(r.uploads(0).empty());
  run(34);
  CHECK(r.upload(0).sequence == 2);
  CHECK(r.upload(0).answer);  // the fetch
  CHECK(r.upload(0).contribution.mini_batches == 2);
  CHECK(r.step() == 3);
  r.answer_all(2, 8, 80);
  CHECK(r.newest() == Floats{80});
}

TEST_CASE("a fetch between two pushes is a question alone", "[actors]") {
  Link link;
  link.push_every = 2;
  Replica r(link, 1);
  const auto job = r.prepare(1);
  REQUIRE(job);
  CHECK_FALSE(job->steps);
  r.exchange.applied(Applied{}, 0, r.fx);
  const Upload question = r.upload(0);
  CHECK(question.answer);
  CHECK(question.contribution.values.empty());
  CHECK(question.sequence == 1);
  r.answer_all(1, 3, 30);
  REQUIRE(r.step() == 1);
  CHECK(r.newest() == Floats{30});
  const auto second = r.prepare(1);
  REQUIRE(second);
  r.apply(*second, 1);
  CHECK(r.upload(0).contribution.mini_batches == 2);
  CHECK(r.upload(0).read_version == 0);  // of the older of the two, whatever came since
}

TEST_CASE("shares of other chunks make a job of what else would travel as it is", "[actors]") {
  Replica r(Link{}, 1);
  const auto job = r.prepare(1, 1, {{0, filled(1)}});
  REQUIRE(job);
  CHECK_FALSE(job->steps);
  CHECK(job->outbound.made);
  CHECK_FALSE(job->outbound.accrue);
  r.apply(*job, 2);
  CHECK(value_of(r.upload(0)) == 200);
}

TEST_CASE("a replica is at most `bound` clocks ahead, and asks for weights that hold so much",
          "[actors]") {
  const Link link = by_itself(Travel::change, 1, {.clocks = LocalLink::Clocks{.bound = 1}});
  Replica r(link, 1);
  r.mini_batch();
  CHECK_FALSE(r.upload(0).answer);
  CHECK(r.step() == 1);
  r.mini_batch();
  CHECK(r.upload(0).answer);
  CHECK(r.upload(0).clock == 1);
  CHECK(r.step() == 1);
  Answer m = Replica::answer_of(2, 0, 3, 30);
  m.clock = 3;  // the others are farther than it has to wait for
  r.answer(std::move(m));
  REQUIRE(r.step() == 2);
  CHECK(r.newest() == Floats{30});
  for (const std::int64_t n : {3, 4}) {  // its weights hold what it needs
    r.mini_batch();
    CHECK_FALSE(r.upload(0).answer);
    CHECK(r.step() == n);
  }
  r.mini_batch();
  CHECK(r.upload(0).answer);
  CHECK(r.upload(0).clock == 4);
}

TEST_CASE("a change counts from the last weights that were sent or came", "[actors]") {
  const Link link = by_itself(Travel::change, 1, {.clocks = LocalLink::Clocks{.bound = 1}});
  Replica r(link, 1);
  const auto since = [](const std::optional<Apply>& job) {
    REQUIRE(job);
    REQUIRE(job->outbound.since.size() == 1);
    return first_of(job->outbound.since[0].values);
  };
  CHECK(since(r.mini_batch()) == 0);
  CHECK(value_of(r.upload(0)) == 100);
  CHECK(since(r.mini_batch()) == 1);
  r.answer_all(2, 2, 30);
  CHECK(since(r.prepare(1)) == 30);
}

TEST_CASE("weights travel with their moments, which come back merged", "[actors]") {
  const Link link = by_itself(Travel::weights, 2, {.moments = LocalLink::Moments::travel});
  Replica r(link, 1);
  const auto first = r.prepare(1);
  REQUIRE(first);
  CHECK_FALSE(first->outbound.made);
  CHECK_FALSE(first->outbound.moments);
  r.apply(*first, 1);
  CHECK(r.uploads(0).empty());
  const auto second = r.prepare(1);
  REQUIRE(second);
  CHECK_FALSE(second->outbound.made);  // the next weights are what travels
  CHECK(second->outbound.moments);
  Applied made = Replica::made_of(*second, 2, 0);
  made.moments = {{filled(21), filled(22)}};
  r.exchange.applied(std::move(made), 0, r.fx);
  const Upload m = r.upload(0);
  REQUIRE(m.contribution.values.size() == 3);
  CHECK(value_of(m, 0) == 2);
  CHECK(value_of(m, 1) == 21);
  CHECK(value_of(m, 2) == 22);
  CHECK(m.contribution.rate == 0.5);  // of the replica's own step
  CHECK_FALSE(r.exchange.facts().gradient_travels);
  Answer answer = Replica::answer_of(1, 0, 1, 50);
  answer.moments = {filled(51), filled(52)};
  r.answer(std::move(answer));
  REQUIRE(r.step() == 2);
  CHECK(r.exchange.label(0).version == 2);  // steps are the replica's own
  const auto third = r.prepare(1);
  REQUIRE(third);
  REQUIRE(third->inbound.moments.size() == 1);
  CHECK(first_of(third->inbound.moments[0].at(1)) == 52);
  CHECK_FALSE(third->inbound.reset_moments);
  r.apply(*third, 3);
  CHECK(r.prepare(1)->inbound.moments.empty());  // they have taken their place
}

TEST_CASE("moments of another size, which another process may send, are refused", "[actors]") {
  const Link link = by_itself(Travel::weights, 1, {.moments = LocalLink::Moments::travel});
  Replica r(link, 1);
  Applied made = Replica::made_of(*r.prepare(1), 2, 0);
  made.moments = {{filled(21), filled(22)}};
  r.exchange.applied(std::move(made), 0, r.fx);
  Stream stream(Device{});
  for (const Tensor& wrong : {Tensor(),
                              stream.allocate({filled(0).elements() + 1}),
                              stream.allocate({filled(0).elements()}, DType::int32)}) {
    Answer answer = Replica::answer_of(1, 0, 1, 50);
    answer.moments = {filled(51), wrong};
    CHECK_THROWS_WITH(r.answer(std::move(answer)), says("unusable answer"));
  }
  CHECK(r.step() == 0);
}

TEST_CASE("moments are zeroed once after each fetch where the link says so", "[actors]") {
  const Link link = by_itself(Travel::weights, 2, {.moments = LocalLink::Moments::reset});
  Replica r(link, 1);
  for (const std::uint64_t round : {1, 2}) {
    CHECK(r.mini_batch()->inbound.reset_moments == (round == 2));
    CHECK_FALSE(r.mini_batch()->inbound.reset_moments);
    r.answer_all(round, static_cast<std::int64_t>(round), 5);
  }
}

TEST_CASE("slim pushes are the optimizer's, of the weights that it had read", "[actors]") {
  Link link;
  link.travel = Travel::slim;
  Replica r(link, 1);
  CHECK(r.exchange.facts().gradient_travels);
  const auto job = r.prepare(1);
  REQUIRE(job);
  CHECK_FALSE(job->steps);
  CHECK(job->outbound.made);
  CHECK(job->outbound.travel == Travel::slim);
  CHECK(job->rate == 1);
  r.apply(*job, 2);
  CHECK(value_of(r.upload(0)) == 200);
  CHECK(r.upload(0).contribution.factor == 1);  // clipping is in what the optimizer made
  r.answer_all(1, 3, 30);
  const auto next = r.prepare(1);
  REQUIRE(next);
  CHECK(next->rate == 0.25);  // of the weights of version 3
  r.apply(*next, 2);
  CHECK(r.upload(0).read_version == 3);
}

TEST_CASE("the server says when the next push is due where the period is dynamic", "[actors]") {
  Link link = by_itself(Travel::change, 2);
  link.dynamic = true;
  Replica r(link, 1);
  std::vector<std::int64_t> pushed;
  const auto until_push = [&] {
    while (true) {
      r.mini_batch();
      if (!r.uploads(0).empty()) {
        return r.upload(0).contribution.mini_batches;
      }
      REQUIRE(r.step() < 20);
    }
  };
  for (const std::int64_t next : {3, 1, 5}) {
    const std::int64_t stands_for = until_push();
    pushed.push_back(stands_for);
    Answer m = Replica::answer_of(pushed.size(), 0, 1, 10);
    m.period = next;
    r.answer(std::move(m));
  }
  CHECK(until_push() == 5);
  CHECK(pushed == std::vector<std::int64_t>{2, 3, 1});
}

TEST_CASE("what is left at the last mini-batch is sent, whatever the period", "[actors]") {
  Link link = by_itself(Travel::weights, 4);
  link.last = 6;
  Replica r(link, 1);
  for (int n = 1; n <= 6; ++n) {
    r.mini_batch();
    CHECK(r.uploads(0).size() == (n == 4 || n == 6 ? 1 : 0));
    if (n == 4) {
      CHECK(r.upload(0).contribution.mini_batches == 4);
      r.answer_all(1, 1, 9);
    }
  }
  CHECK(r.upload(0).contribution.mini_batches == 2);
}

TEST_CASE("the rate is of the replica's own steps, or of where the run is", "[actors]") {
  for (const bool run_rate : {false, true}) {
    Link link = by_itself(Travel::weights, 1);
    link.rate_stride = 2;
    link.run_rate = run_rate;
    Replica r(link, 1);
    CHECK(r.exchange.rate(0) == 1);
    CHECK(r.exchange.rate(1) == 0.25);
    const auto job = r.mini_batch();
    REQUIRE(job);
    CHECK(job->rate == 1);
    CHECK(job->next_rate == 0.25);
    r.answer_all(1, 5, 50);  // the run has come to step 5
    REQUIRE(r.step() == 1);
    CHECK(r.exchange.rate(1) == (run_rate ? 1.0 / 32 : 0.25));
    CHECK(r.exchange.rate(2) == (run_rate ? 1.0 / 128 : 1.0 / 16));
    CHECK(r.exchange.label(0).rate == r.exchange.rate(1));
  }
}

TEST_CASE("each slice has a server", "[actors]") {
  FakeHost host;
  Upstream::Config config{.self = {1}, .rule = halving_rule(), .link = {}, .servers = {{3}, {4}}};
  CHECK_THROWS_WITH(host.join(make_upstream(std::move(config)), {filled(0)}),
                    says("a shard needs a server for each slice"));
}

}  // namespace upstream_test
