// What a replica's exchange makes of answers: unasked ones, fragments that come later, twice, too
// late; and predictions that move with what came.
#include "tests/actors/exchange/upstream_fixture.hpp"

namespace upstream_answers_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Link eager_link(std::int64_t bound = 2) {
  Link link;
  link.travel = Travel::change;
  link.kind = LocalLink{.clocks = LocalLink::Clocks{.bound = bound, .eager = true}};
  return link;
}

/// Slices take turns, each once in every `period` mini-batches.
Link streaming_link(std::int64_t period, const StreamingLink& how) {
  Link link;
  link.travel = Travel::change;
  link.push_every = period;
  link.kind = how;
  return link;
}

Answer unasked(std::int64_t version, float value, std::uint64_t holds) {
  Answer m = Replica::answer_of(0, 0, version, value);
  m.holds = holds;
  m.clock = version;  // nobody is far behind
  return m;
}

Floats firsts(const std::vector<Tensor>& tensors) {
  Floats all;
  for (const Tensor& t : tensors) {
    all.push_back(first_of(t));
  }
  return all;
}

}  // namespace

TEST_CASE("an answer counts once, and only where it was asked for", "[actors]") {
  Replica r(Link{});
  r.mini_batch();
  r.answer(Replica::answer_of(1, 0, 1, 10));
  r.answer(Replica::answer_of(1, 0, 2, 11));  // twice; its slice is not worked in yet
  CHECK(r.step() == 0);
  r.answer(Replica::answer_of(2, 1, 3, 12));  // to nothing that was asked
  CHECK(r.step() == 0);
  r.answer(Replica::answer_of(1, 1, 1, 13));
  REQUIRE(r.step() == 1);
  CHECK(r.newest()[1] == 13);
  const Floats before = r.newest();
  r.answer(Replica::answer_of(1, 0, 9, 99));  // no question is open
  CHECK(r.step() == 1);
  CHECK(r.host.looks == 0);
  r.mini_batch();
  r.answer(Replica::answer_of(1, 0, 9, 99));  // overtaken by the second question
  r.answer(Replica::answer_of(1, 1, 9, 99));
  CHECK(r.step() == 1);
  r.answer_all(2, 4, 20);
  REQUIRE(r.step() == 2);
  CHECK(r.newest() == Floats{20, 20});
}

TEST_CASE("what comes unasked is worked in with what it does not hold of the replica's own",
          "[actors]") {
  Link link = eager_link();
  link.run_rate = true;
  Replica r(link, 1);
  r.mini_batch();
  r.mini_batch();
  REQUIRE(r.step() == 2);  // two changes under way: 100 and 200
  r.answer(unasked(4, 40, 1));
  CHECK(r.host.looks == 1);
  CHECK(r.step() == 2);  // with the next mini-batch
  const auto job = r.prepare(1);
  REQUIRE(job);
  CHECK(firsts(job->inbound.theirs) == Floats{40});
  REQUIRE(job->inbound.own.size() == 1);
  CHECK(firsts(job->inbound.own[0]) == Floats{200});  // the first is in it
  CHECK(job->rate == 1.0 / 32);  // the run was at step 4 then, and one of its own has followed
  r.apply(*job, 3);
  r.answer(unasked(6, 60, 3));
  r.answer(unasked(5, 50, 2));  // overtaken
  const auto next = r.prepare(1);
  REQUIRE(next);
  CHECK(firsts(next->inbound.theirs) == Floats{60});
  CHECK(next->inbound.own.at(0).empty());
  r.apply(*next, 4);
  r.answer(unasked(5, 50, 2));  // older than what has been worked in
  const auto last = r.prepare(1);
  REQUIRE(last);
  CHECK(last->inbound.theirs.empty());
}

TEST_CASE("a question's answer holds all that the replica had sent", "[actors]") {
  const Link link = eager_link(1);
  Replica r(link, 1);
  r.mini_batch();
  r.mini_batch();
  CHECK(r.upload(0).answer);
  Answer m = Replica::answer_of(2, 0, 3, 30);
  m.clock = 9;
  r.answer(std::move(m));
  REQUIRE(r.step() == 2);
  r.answer(unasked(4, 40, 0));
  const auto job = r.prepare(1);
  REQUIRE(job);
  CHECK(job->inbound.own.at(0).empty());
}

TEST_CASE("fragments take turns and are worked in so many mini-batches later, mixed", "[actors]") {
  Replica r(streaming_link(2, {.overlap = 1, .mix = 0.25}));
  std::vector<std::string> sent;
  const auto push = [&]() -> std::optional<Apply> {
    auto job = r.mini_batch();
    std::string slices;
    for (const std::size_t s : {0, 1}) {
      slices += r.uploads(s).empty() ? "" : std::to_string(s);
    }
    sent.push_back(slices);
    return job;
  };
  push();
  push();
  CHECK(r.step() == 2);  // nobody waits for an answer that is due later
  CHECK(r.upload(0).answer);
  CHECK_FALSE(r.exchange.ready(2));
  CHECK(r.exchange.waits_for() == "the servers' answer that is due after mini-batch 2");
  r.answer(Replica::answer_of(1, 0, 1, 10));
  CHECK(r.host.looks == 1);
  CHECK(r.exchange.ready(2));
  CHECK(r.exchange.waits_for().empty());
  const auto third = push();
  REQUIRE(third);
  CHECK(third->inbound.mix == 0.25);
  REQUIRE(third->inbound.theirs.size() == 2);
  CHECK(first_of(third->inbound.theirs[0]) == 10);
  CHECK_FALSE(third->inbound.theirs[1]);  // nothing came for it
  // Slice 0 is not sent now, slice 1 counts from the start.
  REQUIRE(third->outbound.since.size() == 2);
  CHECK_FALSE(third->outbound.since[0].values);
  CHECK(first_of(third->outbound.since[1].values) == 0);
  r.answer(Replica::answer_of(1, 1, 1, 20));
  const auto fourth = push();
  REQUIRE(fourth);
  CHECK(first_of(fourth->inbound.theirs.at(1)) == 20);
  CHECK(first_of(fourth->outbound.since.at(0).values) == 10);  // from the shared fragment
  CHECK(sent == std::vector<std::string>{"", "0", "1", "0"});
}

TEST_CASE("a fragment that comes before it is due waits", "[actors]") {
  const Link link = streaming_link(4, {.overlap = 2, .mix = 0.25});
  Replica r(link, 1);
  for (int n = 1; n <= 4; ++n) {
    r.mini_batch();
  }
  REQUIRE(r.uploads(0).size() == 1);
  r.answer(Replica::answer_of(1, 0, 1, 10));
  const auto fifth = r.mini_batch();
  REQUIRE(fifth);
  CHECK(fifth->inbound.theirs.empty());
  const auto sixth = r.mini_batch();
  REQUIRE(sixth);
  CHECK(firsts(sixth->inbound.theirs) == Floats{10});
  CHECK(r.exchange.ready(6));
}

TEST_CASE(
    "weights travel when a mini-batch begins with them, and what comes is worked into its step",
    "[actors]") {
  Link link;
  link.travel = Travel::weights;
  link.push_every = 2;
  link.kind = LocalLink{.takes = LocalLink::Takes::before_step};
  link.last = 5;
  Replica r(link);
  for (int n = 1; n <= 2; ++n) {
    r.mini_batch();
    CHECK(r.step() == n);  // nobody waits before the next gradient is there
  }
  for (const std::size_t s : {0, 1}) {  // slices take no turns
    CHECK(value_of(r.upload(s)) == 2);
    CHECK(r.upload(s).contribution.values.size() == 1);
    CHECK(r.upload(s).contribution.mini_batches == 2);
    CHECK(r.upload(s).answer);
  }
  CHECK_FALSE(r.exchange.ready(2));
  r.answer(Replica::answer_of(1, 1, 4, 40));
  CHECK_FALSE(r.exchange.ready(2));
  r.answer(Replica::answer_of(1, 0, 5, 50));
  const auto third = r.mini_batch();
  REQUIRE(third);
  CHECK(firsts(third->inbound.theirs) == Floats{50, 40});
  CHECK(third->inbound.mix == 0);
  CHECK(r.uploads(0).empty());
  r.mini_batch();
  CHECK(r.upload(0).read_version == 5);
  CHECK(r.upload(1).read_version == 4);
  CHECK(r.upload(1).contribution.mini_batches == 2);
  CHECK(r.upload(1).contribution.factor == 1);
  r.answer_all(2, 6, 60);
  r.mini_batch();  // the last: told of, though no meeting is due
  CHECK(r.upload(0).contribution.mini_batches == 1);
  CHECK(r.upload(0).contribution.factor == 0);
}

TEST_CASE(
    "a replica that never waits takes fragments over when they come, and sends none meanwhile",
    "[actors]") {
  Link link = streaming_link(4, {.overlap = 2, .never_waits = true});
  Replica r(link);  // slice 1 has its first turn two mini-batches later
  std::vector<std::string> sent;
  const auto mini_batch = [&]() -> Apply {
    r.now += 1;
    REQUIRE(r.exchange.ready(r.step()));
    const auto job = r.mini_batch();
    std::string slices;
    for (const std::size_t s : {0, 1}) {
      slices += r.uploads(s).empty() ? "" : std::to_string(s);
    }
    sent.push_back(slices);
    return *job;
  };
  for (int n = 1; n <= 4; ++n) {
    mini_batch();
  }
  CHECK(r.upload(0).contribution.mini_batches == 4);
  CHECK(r.upload(0).contribution.steps == 4);
  CHECK(r.upload(0).trip == 0);
  r.now += 0.5;
  r.answer(Replica::answer_of(1, 0, 1, 10));
  CHECK(r.host.looks == 1);
  CHECK(mini_batch().inbound.theirs.empty());  // not before it is due
  const Apply sixth = mini_batch();
  CHECK(sixth.inbound.mix == 0);  // in the place of the replica's own
  CHECK(first_of(sixth.inbound.theirs.at(0)) == 10);
  CHECK(r.upload(1).contribution.mini_batches == 6);
  mini_batch();
  const Apply eighth = mini_batch();
  CHECK(first_of(eighth.outbound.since.at(0).values) == 10);  // only what has moved since
  CHECK(r.upload(0).contribution.mini_batches == 4);
  CHECK(r.upload(0).contribution.steps == 2);
  CHECK(r.upload(0).trip == 0.5);
  CHECK(r.upload(0).read_version == 1);
  // The answers come too late, and are taken over with the next mini-batch; that of slice 0 asks for an
  // earlier push, that of slice 1 for none: it counts as from a push whose answer was in time.
  for (int n = 9; n <= 13; ++n) {
    mini_batch();
  }
  Answer late = Replica::answer_of(2, 0, 2, 20);
  late.period = 3;
  r.answer(std::move(late));
  r.answer(Replica::answer_of(1, 1, 1, 30));
  CHECK(firsts(mini_batch().inbound.theirs) == Floats{20, 30});
  for (int n = 15; n <= 16; ++n) {
    mini_batch();
  }
  CHECK(sent == std::vector<std::string>{
                    "", "", "", "0", "", "1", "", "0", "", "", "", "", "", "", "0", "1"});
  CHECK(r.upload(1).contribution.mini_batches == 10);
  CHECK(r.upload(1).contribution.steps == 2);
  CHECK(r.upload(1).trip == 7);
}

TEST_CASE("a fetch that overlaps is waited for, though pushes follow it", "[actors]") {
  Link link;
  link.kind = LocalLink{.fetch_every = 3, .takes = LocalLink::Takes::overlapping};
  Replica r(link, 1);
  for (int n = 1; n <= 5; ++n) {
    CHECK(r.exchange.ready(n - 1));
    r.mini_batch();
  }
  CHECK_FALSE(r.exchange.ready(5));  // before the next fetch its answer is here
  r.answer(Replica::answer_of(3, 0, 3, 10));
  CHECK(r.exchange.ready(5));
  const auto sixth = r.mini_batch();
  REQUIRE(sixth);
  CHECK(first_of(sixth->base.at(0).values) == 10);
}

TEST_CASE("what a replica has predicted follows the weights that replace its own", "[actors]") {
  Link link;
  link.travel = Travel::weights;
  link.kind = LocalLink{};
  Replica r(link, 1);
  const auto job = r.prepare(1);
  REQUIRE(job);
  Applied made = Replica::made_of(*job, 1, 0);
  made.predictions = {weights_of({filled(4)})};
  r.exchange.applied(std::move(made), 0, r.fx);
  r.answer_all(1, 1, 7);
  CHECK(r.step() == 0);  // not before the predictions have moved along
  REQUIRE(r.fx.runs.size() == 1);
  Stream stream(Device{});
  Computed moved = get<Ran<Computed>>(r.fx.runs.front().job(stream)).made;
  r.exchange.job_done(std::move(moved), 0, r.fx);
  REQUIRE(r.step() == 1);
  CHECK(r.newest() == Floats{7});
  CHECK(first_of(r.host.installed[0].predictions.at(0).at(0).values) == 10);
  CHECK_THROWS_WITH(r.exchange.job_done(Computed{}, 0, r.fx),
                    says("predictions that nobody asked for"));
}

TEST_CASE("evaluations read what the servers have pinned", "[actors]") {
  Replica r(Link{});
  r.fx.clear();
  CHECK(
      r.exchange.fetch_pinned({.from = {7}, .request = 41, .view = {6, {}}, .pinned = true}, r.fx));
  std::vector<std::uint64_t> requests;
  for (const ActorId server : {10, 11}) {
    const auto asked = sent_to<PinnedPull>(server, r.fx);
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].from.id == Replica::kSelf.id);
    CHECK(asked[0].step == 6);
    requests.push_back(asked[0].request);
  }
  for (const std::size_t s : {1, 0}) {
    CHECK(r.host.replies.empty());
    Answer m = Replica::answer_of(requests[s], s, 6, static_cast<float>(s + 1));
    m.pinned = true;
    r.answer(std::move(m));
  }
  REQUIRE(r.host.replies.size() == 1);
  CHECK(r.host.replies[0].first.request == 41);
  REQUIRE(r.host.replies[0].second.size() == 2);
  CHECK(first_of(r.host.replies[0].second[0].values) == 1);
  CHECK(first_of(r.host.replies[0].second[1].values) == 2);
  CHECK(r.step() == 0);  // no mini-batch is concerned
}

}  // namespace upstream_answers_test
