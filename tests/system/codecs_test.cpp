// Whole runs through codecs: what is counted, what is learnt, and that runs repeat, in every bit.
#include "actors/exchange/upstream.hpp"
#include "apps/topologies/exchange.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <cmath>
#include <cstring>
#include <map>
#include <span>

namespace codecs_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const Options kThree = {"replicas.count=3", "stop.updates=30", "optimizer.learning_rate=0.05"};

/// A replica dies and comes back, and messages are lost, doubled and late.
const Options kDeathAndReturn = {"stop.updates=60",
                                 "clock.forward.seconds=[1]",
                                 "clock.forward.gamma.shape=4",
                                 "clock.exchange.seconds=[0.1]",
                                 "clock.faults.crashes.at=[6.5]",
                                 "clock.faults.crashes.host=[2]",
                                 "clock.faults.crashes.back=3",
                                 "clock.faults.wire.loss=0.1",
                                 "clock.faults.wire.duplicates=0.3",
                                 "clock.faults.wire.delay=0.1"};

Outcome run_of(const Options& set, const HarnessOptions& how = {}) {
  const Outcome out = run(experiment(tiny_task("16,16"), joined(kThree, set)), how);
  INFO(out.ending.cause);
  REQUIRE(out.ending.exit_code == 0);
  check_accounts(out);
  return out;
}

std::int64_t bytes_of(const Outcome& out) {
  std::int64_t bytes = 0;
  for (const ServerRecord& server : out.servers) {
    bytes += server.bytes;
  }
  return bytes;
}

/// Numbers of the whole network, with padding.
std::int64_t numbers(const Outcome& out) {
  std::int64_t n = 0;
  for (const Weights& chunk : out.ending.weights) {
    for (const Slice& slice : chunk) {
      n += slice.values.elements();
    }
  }
  return n;
}

/// All codecs, with what makes them sensible for a tiny task.
Options up_of(const std::string& name) {
  Options set{"replicas.codec.up=" + name};
  if (name == "dgc") {
    set.push_back("optimizer.rule=sgd");
  }
  if (name == "top_k" || name == "random_k" || name == "dgc") {
    set.push_back(concat("replicas.codec.up.", name, ".density=0.1"));
  }
  if (name == "sign_vote") {
    set.insert(set.end(), {"optimizer.rule=sgd", "optimizer.learning_rate=0.005"});
  }
  if (name == "strom") {
    set.push_back("replicas.codec.up.strom.threshold=0.003");
  }
  return set;
}

}  // namespace

TEST_CASE("no codec is no codec", "[system][codecs]") {
  for (const char* exchange : {"parameter_server", "synchronous", "diloco", "averaging"}) {
    const std::string set = std::string("replicas.exchange=") + exchange;
    const Outcome plain = run_of({set});
    const Outcome none = run_of({set, "replicas.codec.up=none", "replicas.codec.down=none"});
    CHECK(same(plain.weights, none.weights));
    CHECK(bytes_of(plain) == bytes_of(none));
  }
}

TEST_CASE("all places sent, with feedback, are what nobody has encoded", "[system][codecs]") {
  for (const char* exchange : {"replicas.exchange=parameter_server",
                               "replicas.exchange=synchronous",
                               "replicas.exchange.diloco.period=3",
                               "replicas.exchange.wsp.wave=2",
                               "replicas.rule=dana_slim",
                               "replicas.exchange.parameter_server.n_push=2",
                               "replicas.rule=essp",
                               "optimizer.clip_norm=0.05"}) {
    INFO(exchange);
    const Options set{exchange};
    const Outcome plain = run_of(set);
    const Outcome coded = run_of(joined(set, {"replicas.codec.up.top_k.density=1"}));
    CHECK(same(plain.weights, coded.weights));
    CHECK(bytes_of(coded) > bytes_of(plain));  // places, too
  }
}

TEST_CASE("with every codec something is learnt, and a run repeats in every bit",
          "[system][codecs]") {
  for (const CodecScheme& scheme : codecs().all()) {
    const std::string name = scheme.info.name;
    INFO(name);
    const Options set = joined(up_of(name), {"replicas.exchange=synchronous", "stop.updates=120"});
    const Outcome once = run_of(set);
    const Outcome again = run_of(set);
    CHECK(same(once.weights, again.weights));
    CHECK(once.mean_loss(100, 120) < 0.9 * once.mean_loss(0, 5));
  }
}

TEST_CASE("half precision is close to none", "[system][codecs]") {
  const Options set{"replicas.exchange=synchronous", "stop.updates=100"};
  const Outcome plain = run_of(set);
  const Outcome half = run_of(joined(set, {"replicas.codec.up=fp16"}));
  CHECK(relative_distance(half.weights, plain.weights) < 1e-3);
  CHECK(!same(half.weights, plain.weights));
  const Outcome both = run_of(joined(set, {"replicas.codec.up=fp16", "replicas.codec.down=fp16"}));
  CHECK(relative_distance(both.weights, plain.weights) < 1e-2);
}

TEST_CASE("what is counted are the bytes of the messages", "[system][codecs]") {
  const Options set{
      "replicas.exchange=synchronous", "pipeline.stages=1", "pipeline.schedule=sequential"};
  const Outcome plain = run_of(set);
  const std::int64_t n = numbers(plain);
  // Each push and its answer; the last ones' are not sent.
  const std::int64_t pushes = plain.servers.front().applied;
  const std::int64_t answers = bytes_of(plain) / (4 * n) - pushes;
  REQUIRE(bytes_of(plain) == 4 * n * (pushes + answers));
  const auto coded = [&](const Options& more) {
    return bytes_of(run_of(joined(set, more)));
  };
  CHECK(coded({"replicas.codec.up=fp16"}) == 2 * n * pushes + 4 * n * answers);
  const std::int64_t k = std::llround(0.1 * static_cast<double>(n));
  CHECK(coded({"replicas.codec.up.top_k.density=0.1"}) == (4 + 8 * k) * pushes + 4 * n * answers);
  CHECK(coded({"replicas.codec.down=fp16"}) == 4 * n * pushes + 2 * n * answers);
  CHECK(coded({"replicas.codec.down.top_k.density=0.1"}) == 4 * n * pushes + (4 + 8 * k) * answers);
}

TEST_CASE("a vote moves every weight by the learning rate, up and down one bit",
          "[system][codecs]") {
  const auto after = [](int updates, const Options& more) {
    return run_of(joined({"replicas.exchange=synchronous",
                          "optimizer.rule=sgd",
                          "optimizer.learning_rate=0.01",
                          "replicas.codec.up=sign_vote",
                          concat("stop.updates=", updates)},
                         more));
  };
  const Outcome one = after(1, {});
  const Outcome two = after(2, {});
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    CHECK(std::abs(two.weights[i] - one.weights[i]) == Approx(0.01).margin(1e-6));
  }
  const Options down{
      "replicas.codec.down=sign_vote", "pipeline.stages=1", "pipeline.schedule=sequential"};
  const Outcome both = after(30, down);
  const Outcome whole = after(30, {"pipeline.stages=1", "pipeline.schedule=sequential"});
  CHECK(relative_distance(both.weights, whole.weights) < 1e-5);
  const std::int64_t n = numbers(both);
  const std::int64_t bits = (n + 31) / 32 * 4;
  const std::int64_t pushes = both.servers.front().applied;
  const std::int64_t answers = (bytes_of(both) - bits * pushes) / (bits + 4);
  CHECK(bytes_of(both) == bits * pushes + (bits + 4) * answers);
  CHECK(bytes_of(whole) == bits * pushes + 4 * n * answers);
}

TEST_CASE("what goes down leads all replicas to the same weights", "[system][codecs]") {
  for (const char* exchange : {"replicas.exchange=parameter_server",
                               "replicas.exchange=synchronous",
                               "replicas.exchange.diloco.period=3",
                               "replicas.exchange.parameter_server.n_fetch=3",
                               "replicas.exchange.diloco.mode.streaming.overlap=1",
                               "replicas.exchange.diloco.mode=decoupled"}) {
    INFO(exchange);
    Options set{exchange, "stop.updates=60"};
    if (std::string_view(exchange).find("diloco.mode") != std::string_view::npos) {
      set.emplace_back("replicas.exchange.diloco.period=6");
    }
    const Outcome plain = run_of(set);
    // All places of each difference: the sums are rounded, nothing else.
    const Outcome all = run_of(joined(set, {"replicas.codec.down.top_k.density=1"}));
    CHECK(relative_distance(all.weights, plain.weights) < 1e-3);
    const Outcome some = run_of(joined(set, {"replicas.codec.down=int8_block"}));
    CHECK(relative_distance(some.weights, plain.weights) < 0.2);
    CHECK(bytes_of(some) < bytes_of(plain));
    const Outcome few = run_of(joined(set, {"replicas.codec.down.top_k.density=0.03"}));
    CHECK(bytes_of(few) < bytes_of(plain));
    CHECK(few.mean_loss(15, 20) < few.mean_loss(0, 5));
  }
}

TEST_CASE("what replicas make of messages is what the server takes them to have, in every bit",
          "[system][codecs]") {
  for (const char* codec : {"fp16.",
                            "int8_block.block=64",
                            "one_bit.per=column",
                            "top_k.density=0.1",
                            "powersgd.rank=1",
                            "sign_vote."}) {
    for (const char* more :
         {"replicas.exchange=synchronous", "replicas.exchange=parameter_server"}) {
      INFO(codec << " " << more);
      const std::string chosen = codec;
      Options set{more, "pipeline.stages=1", "pipeline.schedule=sequential", "optimizer.rule=sgd"};
      set.push_back(chosen.ends_with('.')
                        ? "replicas.codec.down=" + chosen.substr(0, chosen.size() - 1)
                        : "replicas.codec.down." + chosen);
      std::map<std::int64_t, Tensor> sent;  // by version, of the one server
      std::int64_t equal = 0;
      std::int64_t unequal = 0;
      run_of(set, {.lose = [&](ActorId, const Message& message) {
               if (const auto* made = get_if<Combined>(&message)) {
                 sent[static_cast<std::int64_t>(sent.size()) + 1] = made->updated.sent;
               }
               if (const auto* reply = get_if<PullReply>(&message)) {
                 const Slice& slice = reply->weights.front();
                 if (slice.version > 0) {
                   const Tensor& due = sent.at(slice.version);
                   const std::size_t bytes = 4 * static_cast<std::size_t>(due.elements());
                   REQUIRE(due.elements() == slice.values.elements());
                   ++(std::memcmp(due.data<float>(), slice.values.data<float>(), bytes) == 0
                          ? equal
                          : unequal);
                 }
               }
               return false;
             }});
      CHECK(unequal == 0);
      CHECK(equal > 10);
    }
  }
}

TEST_CASE("a replica that comes back gets whole weights first, and then what they have moved",
          "[system][codecs]") {
  std::map<std::int32_t, std::int64_t> whole;  // by replica, since one of them is back
  std::map<std::int32_t, std::int64_t> moved;  // ... behind the first whole ones
  bool back = false;
  const Outcome out = run_of({"replicas.codec.down.top_k.density=0.1",
                              "stop.updates=90",
                              "clock.forward.seconds=[1]",
                              "clock.exchange.seconds=[0.1]",
                              "clock.faults.crashes.at=[6.5]",
                              "clock.faults.crashes.host=[2]",
                              "clock.faults.crashes.back=3"},
                             {.lose = [&](ActorId, const Message& message) {
                               back = back || holds_alternative<Rejoin>(message);
                               const auto* answer = get_if<Answer>(&message);
                               if (back && answer && !answer->pinned) {
                                 const bool all = static_cast<bool>(answer->weights.front().values);
                                 ++(all ? whole : moved)[answer->replica];
                               }
                               return false;
                             }});
  REQUIRE(out.returned.size() == 1);
  const std::int32_t returned = out.returned.front().replica;
  CHECK(whole[returned] > 0);
  CHECK(moved[returned] > 10);
}

TEST_CASE("who has the newest weights already is sent none", "[system][codecs]") {
  // Of four questions three come before the next push.
  const Options set{"replicas.exchange.parameter_server.n_push=4",
                    "replicas.exchange.parameter_server.n_fetch=1",
                    "stop.updates=20"};
  const std::int64_t plain = bytes_of(run_of(set));
  const std::int64_t sparse =
      bytes_of(run_of(joined(set, {"replicas.codec.down.top_k.density=0.01"})));
  CHECK(static_cast<double>(sparse) < 0.35 * static_cast<double>(plain));
}

TEST_CASE("a slow link is as fast as messages are small", "[system][codecs]") {
  const Options set{"replicas.exchange=synchronous", "clock.bandwidth=1000", "stop.updates=10"};
  const Outcome plain = run_of(set);
  const Outcome half = run_of(joined(set, {"replicas.codec.up=fp16", "replicas.codec.down=fp16"}));
  CHECK(half.seconds == Approx(plain.seconds / 2).epsilon(0.15));
  const Outcome sparse = run_of(joined(
      set, {"replicas.codec.up.top_k.density=0.01", "replicas.codec.down.top_k.density=0.01"}));
  CHECK(sparse.seconds < 0.2 * plain.seconds);
}

TEST_CASE("through faults nothing is counted twice", "[system][codecs]") {
  for (const char* codec : {"top_k.density=0.1", "powersgd.rank=1", "int8_block.block=64"}) {
    INFO(codec);
    const Outcome out = run_of(joined(
        kDeathAndReturn,
        {std::string("replicas.codec.up.") + codec, std::string("replicas.codec.down.") + codec}));
    CHECK(out.broken == "");
    CHECK(out.faults.back == 1);
    CHECK(out.faults.packets_doubled > 0);
    CHECK(out.returned.size() == 1);
  }
}

TEST_CASE("through deaths and returns the servers have the sum of the messages that they applied",
          "[system][codecs]") {
  for (const char* codec : {"top_k.density=0.1", "strom.threshold=0.003", "int4_block.block=64"}) {
    INFO(codec);
    const Options set =
        joined(kDeathAndReturn, {std::string("replicas.codec.up.") + codec, "optimizer.rule=sgd"});
    const auto blueprint = make_blueprint(experiment(tiny_task("16,16"), joined(kThree, set)));
    REQUIRE(blueprint);
    Stream stream{Device{}};
    const auto up = up_codec(*blueprint, 0, 0);
    std::vector<Tensor> start = starting_slices(stream, *blueprint, 0);
    REQUIRE(start.size() == 1);
    std::map<std::pair<std::int32_t, std::int64_t>, Tensor> messages;  // by replica and mini-batch
    const HarnessOptions how{.meddle = [&](Agenda&, ActorId, const Message& message) {
      const auto* upload = get_if<Upload>(&message);
      if (upload && !upload->contribution.values.empty()) {
        messages[{upload->stamp.replica, upload->stamp.batch}] =
            upload->contribution.values.front();
      }
      return false;
    }};
    const Outcome out = run_of(set, how);
    REQUIRE(out.returned.size() == 1);
    const std::span<const float> first = start.front().span<float>();
    std::vector<double> sum(first.begin(), first.end());
    std::int64_t applied = 0;
    for (const AppliedRecord& update : out.applied) {
      const auto found = messages.find({update.stamp.replica, update.stamp.batch});
      REQUIRE(found != messages.end());
      const Tensor moved =
          decoded_on_host(*up, found->second, static_cast<std::int64_t>(sum.size()));
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] -= update.rate * static_cast<double>(moved.span<float>()[i]);
      }
      ++applied;
    }
    CHECK(applied == 60);
    const std::span<const float> end = out.ending.weights.at(0).at(0).values.span<float>();
    for (std::size_t i = 0; i < sum.size(); ++i) {
      REQUIRE(static_cast<double>(end[i]) == Approx(sum[i]).margin(1e-5));
    }
  }
}

TEST_CASE("a push that is none ends the run with a sentence", "[system][codecs]") {
  struct Row {
    Options set;
    std::string sentence;
    bool plain = false;  // what takes the place of the push: numbers, but too few
  };

  const std::vector<Row> rows = {{{"replicas.codec.up=top_k"}, "it announces more numbers", false},
                                 {{"replicas.codec.up=top_k"}, "float32 where int32", true},
                                 {{}, "it has 3 numbers where", true},
                                 {{}, "int32 where float32", false}};
  for (const Row& row : rows) {
    Stream stream{Device{}};
    bool done = false;
    const HarnessOptions how{.meddle = [&](Agenda& agenda, ActorId to, const Message& message) {
      const auto* upload = get_if<Upload>(&message);
      if (done || !upload || upload->contribution.values.empty()) {
        return false;
      }
      done = true;
      Upload other = *upload;
      const std::vector<float> numbers(3);
      const std::vector<std::int32_t> words{-1, 0, 7};
      other.contribution.values.front() =
          row.plain ? from_host(stream, numbers, {3}) : from_host(stream, words, {3});
      agenda.post(agenda.now(), to, Message(std::move(other)));
      return true;
    }};
    const Outcome out = run(experiment(tiny_task("16,16"), joined(kThree, row.set)), how);
    CHECK(out.ending.exit_code == static_cast<int>(ErrorKind::lost));
    CHECK_THAT(out.ending.cause, Catch::Contains("has sent an unusable push"));
    CHECK_THAT(out.ending.cause, Catch::Contains(row.sentence));
  }
}

TEST_CASE("a run that diverges ends as one", "[system][codecs]") {
  for (const CodecScheme& scheme : codecs().all()) {
    INFO(scheme.info.name);
    const Outcome out = run(experiment(tiny_task("16,16", "relu"),
                                       joined(joined(kThree, up_of(scheme.info.name)),
                                              {"replicas.exchange=synchronous",
                                               "optimizer.learning_rate=1e30",
                                               "stop.updates=100"})));
    CHECK(out.ending.exit_code == static_cast<int>(ErrorKind::diverged));
  }
}

}  // namespace codecs_test
