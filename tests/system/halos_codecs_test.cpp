// Codecs on the links between halos' servers (replicas.codec with replicas.exchange=halos).
//   - what a group's server has sent, and what it has kept, is in sum what its group has moved
//   - a codec that leaves nothing out changes nothing; what travels within a group is as it is
//   - a group's server merges the weights that the global one takes it to have, in every bit
//   - bytes and times are those of the messages; a run repeats, and goes on from any moment, in every bit
#include "apps/topologies/cast.hpp"
#include "apps/topologies/exchange.hpp"
#include "experiment/clock.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/machines.hpp"

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>

namespace halos_codecs_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string kHalos = "replicas.exchange.halos.";
const Options kOneStage{"pipeline.stages=1", "pipeline.schedule=sequential"};
const Options kTwoStages{"pipeline.stages=2",
                         "pipeline.schedule=async_one_f_one_b",
                         "pipeline.weights=stash",
                         "replicas.shards=2"};

/// Four replicas whose speeds differ and vary, in two groups.
BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("16,14"),
                    joined({"replicas.count=4",
                            kHalos + "groups=2",
                            kHalos + "period=2",
                            kHalos + "accumulate=3",
                            kHalos + "merge=0.5",
                            "clock.forward.seconds=[1]",
                            "clock.forward.gamma.shape=4",
                            "clock.workers.slowness=[1,1.3,2,1.7]",
                            "clock.input_gradient.seconds=[0]",
                            "clock.weight_gradient.seconds=[0]",
                            "clock.between_servers.seconds=[0.5]",
                            "stop.updates=80"},
                           set));
}

Outcome outcome(const Options& set, const HarnessOptions& options = {}) {
  Outcome done = run(task(set), options);
  INFO(done.ending.cause << done.broken);
  REQUIRE(done.broken.empty());
  REQUIRE(done.ending.exit_code == 0);
  return done;
}

/// With what makes the codec sensible for so small a task.
std::string chosen(const std::string& direction, const std::string& name) {
  const std::string key = "replicas.codec." + direction;
  return name == "top_k" || name == "random_k" ? concat(key, ".", name, ".density=0.1")
         : name == "strom"                     ? key + ".strom.threshold=0.003"
         : name == "qsgd"                      ? key + ".qsgd.levels=64"
                                               : concat(key, "=", name);
}

/// Of codecs that send changes of weights.
std::vector<std::string> codecs_of_changes() {
  std::vector<std::string> all;
  for (const CodecScheme& scheme : codecs().all()) {
    if (scheme.codec && !scheme.velocity && !scheme.votes) {
      all.push_back(scheme.info.name);
    }
  }
  return all;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.elements() == b.elements() &&
         std::memcmp(
             a.data<float>(), b.data<float>(), 4 * static_cast<std::size_t>(a.elements())) == 0;
}

std::int64_t numbers_in(const Message& message) {
  std::int64_t n = 0;
  if (const auto* upload = get_if<Upload>(&message)) {
    for (const Tensor& values : upload->contribution.values) {
      n += values.elements();
    }
  } else if (const auto* answer = get_if<Answer>(&message)) {
    for (const Slice& slice : answer->weights) {
      n += slice.values ? slice.values.elements() : 0;
    }
    for (const Tensor& difference : answer->differences) {
      n += difference.elements();
    }
  }
  return n;
}

/// Whether the message is between a group's server and the global one.
bool is_far(const Message& message) {
  const auto* upload = get_if<Upload>(&message);
  const auto* answer = get_if<Answer>(&message);
  return (upload && upload->far) || (answer && answer->far);
}

std::int64_t bytes_between_servers(const Outcome& done) {
  std::int64_t bytes = 0;
  for (const ServerRecord& server : done.servers) {
    bytes += server.group < 0 ? server.bytes : 0;
  }
  return bytes;
}

/// What a group's server was to send, has sent and has kept.
struct Sums {
  std::vector<double> moved{};
  std::vector<double> sent{};
  std::vector<double> kept{};
  int messages = 0;
};

/// Around the optimizer of a group's server.
class Bookkeeper final : public Machine {
 public:
  Bookkeeper(std::unique_ptr<Machine> inner, std::shared_ptr<const Codec> codec, Sums& sums)
      : inner_(std::move(inner)), codec_(std::move(codec)), sums_(sums) {}

  void on(Message message, double now, Effects& fx) override {
    if (const auto* job = get_if<Combine>(&message)) {
      since_ = job->since;
    } else if (const auto* done = get_if<Ran<CombineMade>>(&message);
               done && done->made.updated.moved) {
      note(done->made);
    }
    inner_->on(std::move(message), now, fx);
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  void note(const CombineMade& made) {
    const std::int64_t n = since_.elements();
    const Tensor sent = decoded_on_host(*codec_, made.updated.moved, n);
    REQUIRE(made.link.tensors.size() >= 1);
    ++sums_.messages;
    sums_.moved.resize(static_cast<std::size_t>(n));
    sums_.sent.resize(static_cast<std::size_t>(n));
    sums_.kept = to_host(made.link.tensors.front());
    for (std::size_t i = 0; i < sums_.moved.size(); ++i) {
      sums_.moved[i] += static_cast<double>(since_.span<float>()[i]) -
                        static_cast<double>(made.updated.next.span<float>()[i]);
      sums_.sent[i] += static_cast<double>(sent.span<float>()[i]);
    }
  }

  std::unique_ptr<Machine> inner_;
  std::shared_ptr<const Codec> codec_;
  Sums& sums_;
  Tensor since_;
};

/// Plays a run from `state` on, where there is one; keeps its state before the deliveries `at`.
std::vector<float> play(const proto::Experiment& e,
                        const std::optional<Archived>& state,
                        const std::set<int>& at,
                        std::vector<Archived>& kept) {
  class Nobody final : public RecordSink {
    std::optional<Diverged> on(const RecordEntry&, double) override { return {}; }
  } nobody;

  auto blueprint = make_blueprint(e);
  REQUIRE(blueprint);
  Cast cast = build_cast(*blueprint);
  const TimeModel times(sections::clock(e),
                        blueprint->times,
                        sections::seed(e),
                        static_cast<std::int32_t>(sections::replica_count(e)),
                        blueprint->sizes);
  Agenda agenda(cast, times, nobody, nullptr);
  if (state) {
    Archive from(*state);
    agenda.archive(from);
    from.expect_end();
  }
  int deliveries = 0;
  agenda.between = [&] {
    if (at.contains(deliveries++)) {
      Archive to;
      agenda.archive(to);
      kept.push_back(to.take());
    }
  };
  const Ending ending = agenda.run();
  INFO(ending.cause);
  REQUIRE(ending.exit_code == 0);
  return flatten(*blueprint, ending.weights);
}

}  // namespace

TEST_CASE("what a group has sent up and what its server has kept is what it has moved",
          "[system][halos][codecs]") {
  for (const std::string& name : codecs_of_changes()) {
    if (name == "terngrad") {
      continue;  // has no residual
    }
    INFO(name);
    const BoxedExperiment e =
        task(joined(kTwoStages, {chosen("up", name), "replicas.codec.feedback=on"}));
    const auto blueprint = make_blueprint(e);
    REQUIRE(blueprint);
    std::map<std::string, Sums> all;
    const Outcome done = run(e, {.recast = [&](Cast& cast) {
                               for (std::int32_t c = 0; c < 2; ++c) {
                                 for (std::size_t s = 0; s < 2; ++s) {
                                   for (const int group : {0, 1}) {
                                     const std::string who =
                                         concat("group-optimizer-", c, ".", s, ".", group);
                                     auto& machine = member(cast, who).machine;
                                     machine = std::make_unique<Bookkeeper>(
                                         std::move(machine), up_codec(*blueprint, c, s), all[who]);
                                   }
                                 }
                               }
                             }});
    REQUIRE(done.ending.exit_code == 0);
    CHECK(all.size() == 8);
    for (const auto& [who, sums] : all) {
      INFO(who);
      CHECK(sums.messages > 4);
      double error = 0;
      double size = 0;
      double kept = 0;
      for (std::size_t i = 0; i < sums.moved.size(); ++i) {
        error = std::max(error, std::abs(sums.sent[i] + sums.kept[i] - sums.moved[i]));
        size = std::max(size, std::abs(sums.moved[i]));
        kept = std::max(kept, std::abs(sums.kept[i]));
      }
      CHECK(error < 1e-5 * size);
      CHECK((kept > 0 || name == "powersgd"));  // rank 4 is all of a small matrix
    }
  }
}

TEST_CASE("between halos' servers no codec is no codec, and one that leaves nothing out none",
          "[system][halos][codecs]") {
  for (const Options& pipeline : {kOneStage, kTwoStages}) {
    const Outcome plain = outcome(pipeline);
    const Outcome none =
        outcome(joined(pipeline, {"replicas.codec.up=none", "replicas.codec.down=none"}));
    CHECK(same(none.weights, plain.weights));
    CHECK(bytes_between_servers(none) == bytes_between_servers(plain));
    const Outcome all = outcome(joined(pipeline, {"replicas.codec.up.top_k.density=1"}));
    CHECK(same(all.weights, plain.weights));
    CHECK(bytes_between_servers(all) > bytes_between_servers(plain));  // places, too
    // All places of each difference: the sums are rounded, nothing else.
    const Outcome down = outcome(joined(pipeline, {"replicas.codec.down.top_k.density=1"}));
    CHECK(relative_distance(down.weights, plain.weights) < 1e-4);
    const Outcome half =
        outcome(joined(pipeline, {"replicas.codec.up=fp16", "replicas.codec.down=fp16"}));
    CHECK(relative_distance(half.weights, plain.weights) < 1e-2);
    CHECK_FALSE(same(half.weights, plain.weights));
  }
}

TEST_CASE("with every codec between halos' servers something is learnt, and a run repeats",
          "[system][halos][codecs]") {
  for (const std::string& name : codecs_of_changes()) {
    const bool grows = name == "terngrad";
    INFO(name);
    Options set{chosen("up", name), "stop.updates=120"};
    if (!grows) {
      set.push_back(chosen("down", name));
    }
    const Outcome once = outcome(set);
    const Outcome again = outcome(set);
    check_accounts(once);
    CHECK(same(once.weights, again.weights));
    CHECK(once.order == again.order);
    CHECK(once.mean_loss(100, 120) < 0.7 * once.mean_loss(0, 5));
  }
  const Outcome threads =
      outcome({"replicas.codec.up=int8_block", "replicas.codec.down=one_bit"}, {.threads = true});
  check_accounts(threads);
}

TEST_CASE("a group's server merges what the global one takes it to have, in every bit",
          "[system][halos][codecs]") {
  for (const std::string& name : codecs_of_changes()) {
    if (name == "terngrad") {
      continue;  // is refused
    }
    INFO(name);
    std::map<std::int64_t, Tensor> sent;       // by version, of the global server
    std::map<ActorId, std::int64_t> answered;  // version, by group's server
    int equal = 0;
    int unequal = 0;
    const auto watch = [&](ActorId to, const Message& message) {
      if (const auto* made = get_if<Combined>(&message); made && made->updated.difference) {
        sent[static_cast<std::int64_t>(sent.size()) + 1] = made->updated.sent;
      } else if (const auto* answer = get_if<Answer>(&message); answer && answer->far) {
        answered[to] = answer->weights.front().version;
      } else if (const auto* job = get_if<Combine>(&message); job && job->theirs) {
        ++(same_bits(job->theirs, sent.at(answered.at(job->from.id))) ? equal : unequal);
      }
      return false;
    };
    outcome(joined(kOneStage, {chosen("up", name), chosen("down", name)}), {.lose = watch});
    CHECK(unequal == 0);
    CHECK(equal > 10);
  }
}

TEST_CASE("bytes and times between halos' servers are those of the messages",
          "[system][halos][codecs]") {
  struct Far {
    std::int64_t up = 0;  // bytes of a message
    std::int64_t down = 0;
    std::int64_t bytes = 0;  // in all
    std::int64_t near = 0;
    double up_seconds = 0;  // of a message's way
    double down_seconds = 0;
  };

  const auto far = [](const Options& set) {
    Far seen;
    std::map<std::int32_t, double> left;  // by group
    std::map<ActorId, double> answered;   // by group's server
    const auto watch = [&](Agenda& agenda, ActorId to, const Message& message) {
      const std::int64_t bytes = 4 * numbers_in(message);
      if (const auto* upload = get_if<Upload>(&message)) {
        if (upload->far) {
          seen.up = bytes;
          left[upload->stamp.replica] = agenda.now();
        } else if (!upload->contribution.values.empty()) {
          CHECK(upload->contribution.values.front().type() == DType::float32);
          seen.near = bytes;
        }
      } else if (const auto* answer = get_if<Answer>(&message)) {
        if (answer->far) {
          seen.down = bytes;
          seen.up_seconds = agenda.now() - left.at(answer->replica);
          answered[to] = agenda.now();
        } else if (!answer->pinned) {
          CHECK(answer->differences.empty());
          CHECK(answer->weights.front().values.type() == DType::float32);
        }
      } else if (const auto* job = get_if<Combine>(&message); job && job->theirs) {
        seen.down_seconds = agenda.now() - answered.at(job->from.id);
      }
      if (is_far(message)) {
        seen.bytes += bytes;
      }
      return false;
    };
    const Outcome done = outcome(joined(joined(kOneStage,
                                               {"clock.between_servers.seconds=[0]",
                                                "clock.bandwidth_between_servers=1000",
                                                "clock.update.seconds=[0]"}),
                                        set),
                                 {.meddle = watch});
    CHECK(bytes_between_servers(done) <= seen.bytes);
    CHECK(10 * bytes_between_servers(done) > 8 * seen.bytes);
    return seen;
  };
  const Far plain = far({});
  const std::int64_t n = plain.near / 4;
  CHECK(plain.up == 4 * n);
  CHECK(plain.down == 4 * n);
  CHECK(plain.up_seconds == Approx(static_cast<double>(4 * n) / 1000));
  const Far half = far({"replicas.codec.up=fp16", "replicas.codec.down=bf16"});
  CHECK(half.near == plain.near);
  CHECK(half.up == (n + 1) / 2 * 4);
  CHECK(half.down == (n + 1) / 2 * 4);
  CHECK(half.up_seconds == Approx(static_cast<double>(half.up) / 1000));
  CHECK(half.down_seconds == Approx(static_cast<double>(half.down) / 1000));
  const std::int64_t k = std::llround(0.1 * static_cast<double>(n));
  const Far sparse =
      far({"replicas.codec.up.top_k.density=0.1", "replicas.codec.down.top_k.density=0.1"});
  CHECK(sparse.up == 4 + 8 * k);
  CHECK(sparse.down % (4 + 8 * k) == 0);  // of one version or several
  CHECK(sparse.up_seconds == Approx(static_cast<double>(sparse.up) / 1000));
  CHECK(sparse.down_seconds == Approx(static_cast<double>(sparse.down) / 1000));
}

TEST_CASE("halos with codecs goes on from any moment as in one piece", "[system][halos][codecs]") {
  for (const Options& codecs : std::vector<Options>{
           {"replicas.codec.up=int8_block", "replicas.codec.down=int8_block"},
           {"replicas.codec.up.top_k.density=0.1", "replicas.codec.down.top_k.density=0.1"},
           {"replicas.codec.up.strom.density=0.1", "replicas.codec.down=one_bit"},
           {"replicas.codec.up=powersgd", "replicas.codec.down=int4_block"},
           {"replicas.codec.up=random_k"}}) {
    INFO(codecs.front());
    const BoxedExperiment e = task(joined(kTwoStages, joined(codecs, {"stop.updates=20"})));
    std::set<int> moments;
    for (int i = 1; i <= 12; ++i) {
      moments.insert(i * 131);
    }
    std::vector<Archived> kept;
    std::vector<Archived> none;
    const std::vector<float> whole = play(e, {}, moments, kept);
    REQUIRE(kept.size() >= 8);
    for (const Archived& state : kept) {
      CHECK(same(play(e, state, {}, none), whole));
    }
  }
}

namespace {

struct Spoilt {
  Options set;
  std::string sentence;
  bool up = true;
  bool plain = false;  // what takes the place of the first message: numbers, but too few
  std::int64_t since = 0;
};

Outcome run_of(const Spoilt& row, int groups) {
  Stream stream{Device{}};
  const Tensor wrong = row.plain ? from_host(stream, std::vector<float>(3), {3})
                                 : from_host(stream, std::vector<std::int32_t>{-1, 0, 7}, {3});
  bool done = false;
  const auto spoil = [&](Agenda& agenda, ActorId to, const Message& message) {
    if (done || !is_far(message) || holds_alternative<Upload>(message) != row.up) {
      return false;
    }
    done = true;
    if (row.up) {
      Upload other = get<Upload>(message);
      other.contribution.values.front() = wrong;
      agenda.post(agenda.now(), to, Message(std::move(other)));
      return true;
    }
    Answer other = get<Answer>(message);
    (other.differences.empty() ? other.weights.front().values : other.differences.front()) = wrong;
    other.since = row.since;
    agenda.post(agenda.now(), to, Message(std::move(other)));
    return true;
  };
  Outcome out = run(task(joined(row.set, {concat(kHalos, "groups=", groups)})), {.meddle = spoil});
  CHECK(done);
  return out;
}

}  // namespace

TEST_CASE("a message between halos' servers that is none ends the run with a sentence",
          "[system][halos][codecs]") {
  const std::string down = "replicas.codec.down=";
  const std::string none = "the server has sent an unusable answer: ";
  const std::vector<Spoilt> rows{
      {.set = {"replicas.codec.up=top_k"}, .sentence = "it announces more numbers"},
      {.set = {"replicas.codec.up=top_k"}, .sentence = "float32 where int32", .plain = true},
      {.set = {}, .sentence = "it has 3 numbers where", .plain = true},
      {.set = {}, .sentence = "int32 where float32"},
      {.set = {}, .sentence = none + "it has 3 numbers", .up = false, .plain = true},
      {.set = {down + "top_k"}, .sentence = none + "it announces more", .up = false},
      {.set = {down + "top_k"}, .sentence = none + "it is of float32", .up = false, .plain = true},
      {.set = {down + "top_k"}, .sentence = "moved since version 77", .up = false, .since = 77},
      {.set = {down + "int8_block"}, .sentence = none, .up = false}};
  for (const Spoilt& row : rows) {
    INFO(row.sentence);
    const Outcome out = run_of(row, 1);
    CHECK(out.ending.exit_code == static_cast<int>(ErrorKind::lost));
    CHECK_THAT(out.ending.cause, Catch::Contains(row.sentence));
    const Outcome two = run_of(row, 2);
    if (row.up) {
      CHECK(two.ending.exit_code == static_cast<int>(ErrorKind::lost));
      CHECK_THAT(two.ending.cause,
                 Catch::Contains("the server of group 0 has sent an unusable push"));
    } else {  // costs the group that has got it
      CHECK(two.ending.exit_code == 0);
      REQUIRE(two.lost.size() == 2);
      CHECK_THAT(two.lost.front().cause, Catch::Contains(row.sentence));
    }
  }
}

TEST_CASE("faults between halos' servers with codecs cost what is the group's, and no more",
          "[system][halos][codecs]") {
  for (const char* codec : {"top_k.density=0.1", "powersgd.rank=1", "int8_block.block=64"}) {
    INFO(codec);
    const Outcome done = outcome({std::string("replicas.codec.up.") + codec,
                                  std::string("replicas.codec.down.") + codec,
                                  "clock.faults.hosts=3",
                                  "clock.faults.crashes.at=[30]",
                                  "clock.faults.crashes.host=[2]",
                                  "clock.faults.wire.loss=0.1",
                                  "clock.faults.wire.duplicates=0.3",
                                  "clock.faults.wire.delay=0.1"});
    CHECK(done.faults.packets_doubled > 0);
    CHECK(done.ending.step >= 80);
    check_accounts(done);
  }
}

}  // namespace halos_codecs_test
