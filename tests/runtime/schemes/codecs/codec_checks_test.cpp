// What replicas.codec goes with, and the sentences where it does not.
#include "actors/exchange/built_in.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/rules/rule.hpp"
#include "tests/support/catch.hpp"

namespace codec_checks_test {

using namespace troupe;

namespace {

std::string verdict(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  REQUIRE(set_value(e, "replicas.count=4"));
  for (const std::string& assignment : assignments) {
    INFO(assignment);
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  const Result<void> checked = check_replicas(e);
  if (checked) {
    return "";
  }
  CHECK(checked.error().kind == ErrorKind::usage);
  return checked.error().message;
}

struct Row {
  std::vector<std::string> set;
  std::string sentence;  // a part of it; empty: accepted
};

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    std::string all;
    for (const std::string& assignment : row.set) {
      all += assignment + ' ';
    }
    INFO(all);
    const std::string got = verdict(row.set);
    if (row.sentence.empty()) {
      CHECK(got == "");
    } else {
      CHECK_THAT(got, Catch::Contains(row.sentence));
    }
  }
}

const std::string kSynchronous = "replicas.exchange=synchronous";
const std::string kSgd = "optimizer.rule=sgd";

}  // namespace

TEST_CASE("codecs go with exchanges that have servers", "[codecs]") {
  for (const CodecScheme& scheme : codecs().all()) {
    const std::string up = "replicas.codec.up=" + scheme.info.name;
    check({{{kSynchronous, kSgd, up}, ""}, {{kSgd, up}, ""}});
  }
  const std::string top = "replicas.codec.up=top_k";
  check({
      {{"replicas.exchange.synchronous.reduction=ring", top},
       "its messages is not a message; use fp16, bf16, random_k or powersgd"},
      {{"replicas.exchange.synchronous.reduction=ring", "replicas.codec.up=fp16"}, ""},
      {{"replicas.exchange.synchronous.reduction=tree", "replicas.codec.up=powersgd"}, ""},
      {{"replicas.exchange.synchronous.reduction=nccl"}, ""},
      {{"replicas.exchange.synchronous.reduction=nccl", "replicas.codec.up=fp16"},
       "what they send to one another goes through no codec"},
      {{"replicas.exchange.synchronous.reduction=nccl", "clock.bandwidth=1e9"},
       "clock.bandwidth: the way of gradients that NCCL adds up (synchronous.reduction nccl) is "
       "not "
       "modelled; leave it out, or choose ring or tree"},
      {{"replicas.exchange.synchronous.reduction=ring",
        "replicas.codec.up=random_k",
        "replicas.codec.down=bf16"},
       "has no servers that answer"},
      {{"replicas.exchange.synchronous.reduction=tree", "replicas.codec.down=fp16"},
       "replicas.codec.down: fp16 does not go with replicas.exchange synchronous"},
      {{"replicas.exchange=hogwild", top}, "one buffer"},
      {{"replicas.exchange=sandblaster", "replicas.codec.up=fp16"}, "sandblaster"},
      {{"replicas.count=1", top}, "one replica has no servers"},
      {{"replicas.count=1"}, ""},
      {{"replicas.exchange.synchronous.reduction=ring", "replicas.codec.up=none"}, ""},
      {{"replicas.exchange=diloco", top}, ""},
      {{"replicas.exchange=wsp", top}, ""},
      {{"replicas.rule=ssp", top}, ""},
      {{"replicas.rule=essp", top}, ""},
      {{"replicas.rule=dana_slim", top}, ""},
      {{"replicas.codec.feedback=on"}, "leaves nothing out"},
      {{"replicas.codec.feedback=off"}, "leaves nothing out"},
      {{"replicas.codec.down.sign_vote.momentum=0.5"}, "it is the replicas that keep it"},
      {{"replicas.codec.feedback=on", top}, ""},
  });
}

TEST_CASE("whole weights go through codecs that make sense of them", "[codecs]") {
  for (const char* exchange : {"averaging", "bmuf", "easgd"}) {
    const std::string set = std::string("replicas.exchange=") + exchange;
    const std::string order = "replicas.exchange.easgd.order=sequential";
    const bool easgd = set.ends_with("easgd");
    for (const char* codec : {"fp16", "bf16", "int8_block"}) {
      check({{{easgd ? order : set, std::string("replicas.codec.up=") + codec}, ""}});
    }
    for (const char* codec : {"int4_block",
                              "e3m0",
                              "one_bit",
                              "strom",
                              "top_k",
                              "random_k",
                              "qsgd",
                              "terngrad",
                              "powersgd",
                              "dgc"}) {
      check({{{easgd ? order : set, std::string("replicas.codec.up=") + codec},
              "whole weights travel"}});
    }
  }
  check({{{"replicas.exchange.easgd.order=simultaneous", "replicas.codec.up=fp16"},
          "before a step"}});
}

TEST_CASE("servers step by votes as they would by the gradient", "[codecs]") {
  const std::string vote = "replicas.codec.up=sign_vote";
  const std::string on = "replicas.codec.feedback=on";
  const std::string plain = "optimizer.rule=sgd";
  REQUIRE(register_peer_exchanges());
  check({
      {{kSynchronous, plain, vote}, ""},
      {{kSynchronous, plain, vote, "replicas.codec.down=sign_vote"}, ""},
      {{"replicas.rule=softsync", plain, vote}, ""},
      {{"replicas.rule=staleness_aware", plain, vote}, ""},
      {{kSynchronous, "optimizer.rule=adamw", vote},
       "optimizer.rule adamw needs the gradient itself"},
      {{kSynchronous, "optimizer.rule=momentum", vote}, "needs the gradient itself"},
      {{kSynchronous, "optimizer.rule=adamw", vote, on}, ""},
      {{"replicas.rule=dana_zero", plain, vote}, "needs the gradient itself"},
      {{"replicas.rule=dc_asgd", plain, vote}, "needs the gradient itself"},
      {{"replicas.exchange=diloco", vote}, "changes or weights travel"},
      {{"replicas.exchange=averaging", vote}, "whole weights travel"},
      {{"replicas.exchange=strom", vote}, "changes or weights travel"},
      {{"replicas.rule=dana_slim", vote, on}, "changes or weights travel"},
      {{"replicas.exchange.synchronous.reduction=ring", plain, vote},
       "the sum of two of its messages is not a message"},
      {{"replicas.exchange.synchronous.backup=1", plain, vote}, "remembers what it has sent"},
      {{"replicas.exchange.synchronous.backup=1", plain, "replicas.codec.up.sign_vote.momentum=0"},
       ""},
  });
}

TEST_CASE("a rule that answers each replica by itself has no differences to send", "[codecs]") {
  const auto none = [](const RuleContext&) {
    return std::unique_ptr<Step>();
  };
  REQUIRE(
      register_rule({.info = {.name = "answers_all", .summary = "of this test"}, .step = none}));
  REQUIRE(register_rule({.info = {.name = "answers_each", .summary = "of this test"},
                         .step = none,
                         .answers_each = true}));
  check({
      {{"replicas.rule.custom.name=answers_all", "replicas.codec.down=fp16"}, ""},
      {{"replicas.rule.custom.name=answers_each", "replicas.codec.down=fp16"},
       "answers each with its own"},
      {{"replicas.rule.custom.name=answers_each", "replicas.codec.up=fp16"}, ""},
  });
}

TEST_CASE("what is remembered is not given up", "[codecs]") {
  const std::string ring = "replicas.rule=ringmaster";
  const std::string admit = "replicas.admit=ringmaster";
  const std::string backup = "replicas.exchange.synchronous.backup=1";
  const std::string off = "replicas.codec.feedback=off";
  check({
      {{ring, "replicas.codec.up=top_k"}, "gives up pushes"},
      {{admit, "replicas.codec.up=fp16"}, "gives up pushes"},
      {{backup, "replicas.codec.up=one_bit"}, "replicas.exchange.synchronous.backup gives up"},
      {{ring, "replicas.codec.up=top_k", off}, ""},
      {{ring, "replicas.codec.up=e3m0"}, "gives up pushes"},
      {{ring, "replicas.codec.up=e3m0", off}, ""},
      {{ring, "replicas.codec.up.e3m0.rounding=stochastic"}, ""},
      {{ring, "replicas.codec.up=qsgd"}, ""},
      {{backup, "replicas.codec.up=terngrad"}, ""},
      {{backup, "replicas.codec.up=powersgd", off}, "remembers what it has sent"},
      {{backup, "replicas.codec.up.powersgd.warm_start=false", off}, ""},
      {{backup, "replicas.codec.up.strom.density=0.1", off}, "remembers what it has sent"},
      {{backup, "replicas.codec.up=strom", off}, ""},
  });
}

TEST_CASE("a velocity in the gradient's place", "[codecs]") {
  const std::string dgc = "replicas.codec.up=dgc";
  const auto needs = [](const std::string& what) {
    return what + " needs the gradient itself";
  };
  check({
      {{kSynchronous, kSgd, dgc}, ""},
      {{kSynchronous, "optimizer.momentum=0", dgc}, ""},
      {{kSynchronous, dgc}, needs("optimizer.rule momentum")},
      {{kSynchronous, "optimizer.rule=adam", dgc}, needs("optimizer.rule adam")},
      {{kSynchronous, "optimizer.rule=adam", "optimizer.momentum=0", dgc},
       needs("optimizer.rule adam")},
      {{kSgd, "replicas.rule=heavy_ball", dgc}, needs("the step heavy_ball")},
      {{kSgd, "replicas.rule=adagrad", dgc}, needs("the step adagrad")},
      {{kSgd, "replicas.rule=dual_averaging", dgc}, needs("the step dual_averaging")},
      {{kSgd, "replicas.rule=dc_asgd", dgc}, needs("replicas.scale dc_asgd")},
      {{kSgd, "replicas.rule=fasgd", dgc}, "needs the gradient itself"},
      {{kSgd, "replicas.rule=staleness_aware", dgc}, ""},
      {{kSgd, "replicas.rule=softsync", dgc}, ""},
      {{kSgd, "replicas.rule=ssp", dgc}, "changes or weights"},
      {{kSgd, "replicas.exchange=diloco", dgc}, "changes or weights"},
      {{kSgd, dgc, "replicas.codec.feedback=off"}, "feedback: off does not go with dgc"},
      {{kSgd, "replicas.codec.down=dgc"}, "servers answer with weights"},
  });
}

TEST_CASE("what goes down", "[codecs]") {
  for (const CodecScheme& scheme : codecs().all()) {
    const std::string down = "replicas.codec.down=" + scheme.info.name;
    const bool grows = scheme.info.name == "qsgd" || scheme.info.name == "terngrad";
    if (!scheme.velocity) {
      check({{{kSynchronous, down}, grows ? "would grow" : ""}});
    }
  }
  check({
      {{"replicas.codec.down.qsgd.levels=32"}, ""},
      {{"replicas.codec.up=terngrad", "replicas.codec.feedback=on"}, "would grow"},
      {{"replicas.codec.up.qsgd.levels=32", "replicas.codec.feedback=on"}, ""},
      {{"replicas.exchange=easgd", "replicas.codec.down=fp16"}, "answers each with its own"},
      {{"replicas.exchange=averaging", "replicas.codec.down=top_k"}, "missing in them and lost"},
      {{"replicas.exchange=bmuf", "replicas.codec.down=fp16"}, "missing in them and lost"},
      {{"replicas.exchange=averaging", "replicas.codec.up=fp16"}, ""},
      {{"replicas.rule=essp", "replicas.codec.down=top_k"}, "sends unasked"},
      {{"replicas.rule=essp", "replicas.codec.down=int8_block"}, ""},
      {{"placement.devices=[cuda:0]", "replicas.codec.down=fp16"}, "host memory"},
      {{"placement.devices=[cuda:0]", "replicas.codec.up=fp16"}, ""},
  });
}

TEST_CASE("between halos' servers go the codecs of changes", "[codecs]") {
  const std::string halos = "replicas.exchange=halos";
  for (const CodecScheme& scheme : codecs().all()) {
    const bool of_gradients = scheme.velocity || scheme.votes;
    check({{{halos, "replicas.codec.up=" + scheme.info.name},
            of_gradients ? "changes or weights" : ""}});
  }
  check({
      {{halos, "replicas.codec.down=fp16"}, ""},
      {{halos, "replicas.codec.down=one_bit"}, ""},
      {{halos, "replicas.codec.down=terngrad"}, "would grow"},
      {{halos, "replicas.codec.down=dgc"}, "servers answer with weights"},
      {{halos, "replicas.codec.up=top_k", "replicas.codec.feedback=off"}, ""},
      {{halos, "replicas.codec.feedback=on"}, "leaves nothing out"},
      {{halos, "placement.devices=[cuda:0]", "replicas.codec.down=fp16"}, "host memory"},
  });
}

TEST_CASE("a codec of one's own", "[codecs]") {
  class Doubling final : public Codec {
   public:
    void encode(std::span<const float> x,
                LinkState&,
                const RandomStream&,
                std::vector<std::uint32_t>& message) const override {
      message.push_back(static_cast<std::uint32_t>(x.size()));
    }

    Result<void> read(Words, std::int64_t, float*) const override { return {}; }
  };

  const auto make = [](const CodecContext&) {
    return std::make_unique<Doubling>();
  };
  const auto nothing = register_codec({.info = {.name = "empty_handed", .summary = "nothing"}});
  REQUIRE(!nothing);
  CHECK_THAT(nothing.error().message, Catch::Contains("needs a factory"));
  const auto taken = register_codec({.info = {.name = "top_k", .summary = "again"}, .codec = make});
  REQUIRE(!taken);
  CHECK_THAT(taken.error().message, Catch::Contains("taken"));
  CHECK_THAT(
      verdict({"replicas.codec.up.custom.name=doubling"}),
      Catch::Contains("replicas.codec.up.custom.name: \"doubling\" has not been registered"));
  REQUIRE(register_codec({.info = {.name = "doubling",
                                   .summary = "counts",
                                   .options = {{.name = "by", .at_least = 1}}},
                          .codec = make}));
  check({
      {{"replicas.codec.up.custom.name=doubling"}, ""},
      {{"replicas.codec.down.custom.name=top_k"}, "choose it by replicas.codec.down=top_k"},
      {{"replicas.exchange=averaging", "replicas.codec.up.custom.name=doubling"}, "whole weights"},
  });
}

}  // namespace codec_checks_test
