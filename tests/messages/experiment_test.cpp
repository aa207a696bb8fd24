#include "messages/experiment.hpp"

#include "experiment.pb.h"
#include "tests/support/catch.hpp"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace experiment_test {

using namespace troupe;

namespace {

namespace pb = google::protobuf;
using pb::util::MessageDifferencer;

proto::Experiment parsed(std::string_view text) {
  auto experiment = parse_experiment(text, "run.textproto");
  INFO(text << "\n" << (experiment ? "" : experiment.error().message));
  REQUIRE(experiment);
  return *experiment;
}

proto::Experiment resolved(proto::Experiment experiment = {}) {
  const auto done = resolve(experiment);
  INFO((done ? "" : done.error().message));
  REQUIRE(done);
  return experiment;
}

proto::Experiment with(const std::vector<std::string>& assignments,
                       proto::Experiment experiment = {}) {
  for (const std::string& assignment : assignments) {
    const auto done = set_value(experiment, assignment);
    INFO(assignment << ": " << (done ? "" : done.error().message));
    REQUIRE(done);
  }
  return experiment;
}

std::string parse_error(std::string_view text, std::string_view origin = "run.textproto") {
  const auto experiment = parse_experiment(text, origin);
  INFO(text);
  REQUIRE(!experiment);
  CHECK(experiment.error().kind == ErrorKind::usage);
  return experiment.error().message;
}

/// An error leaves the experiment as it was.
std::string set_error(const std::string& assignment) {
  const auto before = with({"model.snn.hidden=[3]", "pipeline.schedule.interleaved.chunks=5"});
  auto experiment = before;
  const auto done = set_value(experiment, assignment);
  INFO(assignment);
  REQUIRE(!done);
  CHECK(done.error().kind == ErrorKind::usage);
  CHECK(MessageDifferencer::Equals(experiment, before));
  return done.error().message;
}

std::string resolve_error(const std::string& assignment) {
  auto experiment = with({assignment});
  const auto done = resolve(experiment);
  INFO(assignment);
  REQUIRE(!done);
  CHECK(done.error().kind == ErrorKind::usage);
  return done.error().message;
}

std::string parent(const std::string& path) {
  return path.substr(0, path.rfind('.'));
}

/// f(path, field, selection), where the selection is what makes the nearest choice above:
/// "model=mlp" or "".
template <class F>
void for_each_key(const F& f,
                  const pb::Descriptor& type = *proto::Experiment::descriptor(),
                  const std::string& prefix = "",
                  const std::string& selection = "") {
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    if (field.options().GetExtension(proto::internal)) {
      continue;
    }
    const std::string path = prefix + field.name();
    f(path, field, selection);
    if (field.message_type() && !field.is_repeated()) {
      const bool alternative = field.containing_oneof() != nullptr;
      for_each_key(f,
                   *field.message_type(),
                   path + '.',
                   alternative ? parent(path) + '=' + field.name() : selection);
    }
  }
}

const std::string kTopLevel =
    " (legal: name, seed, model, data, optimizer, pipeline, replicas, decoupled, placement, "
    "clock, stop, record, phases, extension, start_from, start_from_skip)";
const std::string kPipeline =
    " (legal: stages, micro_batches, schedule, width, weights, activations, cut, partition, "
    "error_feedback, copies, stage_of)";
const std::string kSchedules =
    " (legal: sequential, gpipe, one_f_one_b, interleaved, zb_h1, zb_2p, zb_v, dual_pipe_v, "
    "dual_pipe, file, async_one_f_one_b, async_full_duplex, custom)";
const std::string kRules =
    " (legal: sgd, momentum, nesterov, adam, adamw, nadam, nadamw, adagrad, rmsprop, muon, lion, "
    "lars, lamb, soap, basis_rotation, custom)";

}  // namespace

// -- names ---------------------------------------------------------------------------------------

TEST_CASE("the nearest name is a misspelt one, or none", "[messages]") {
  const std::vector<std::string> names{"relu", "tanh", "gelu", "learning_rate", "sgd"};
  CHECK(nearest("rleu", names) == "relu");
  CHECK(nearest("tan", names) == "tanh");
  CHECK(nearest("TANH", names) == "tanh");
  CHECK(nearest("learningRate", names) == "learning_rate");
  CHECK(nearest("learning-rat", names) == "learning_rate");
  CHECK(nearest("sdg", names) == "sgd");
  CHECK(nearest("momentum", names).empty());
  CHECK(nearest("x", names).empty());
  CHECK(nearest("", names).empty());
  CHECK(nearest("relu", {}).empty());
  CHECK(nearest(std::string(100000, 'x'), names).empty());
}

TEST_CASE("a choice knows its name", "[messages]") {
  proto::WeightPolicy weights;
  CHECK(choice_name(weights).empty());
  weights.mutable_spectrain();
  CHECK(choice_name(weights) == "spectrain");
  CHECK_THROWS_AS(choice_name(proto::Stop{}), ContractError);
}

// -- defaults ------------------------------------------------------------------------------------

TEST_CASE("resolving writes out every default", "[messages]") {
  const auto experiment = resolved();
  CHECK(experiment.has_seed());
  CHECK(experiment.model().mlp().hidden_size() == 2);
  CHECK(experiment.model().mlp().hidden(1) == 128);
  CHECK(experiment.model().mlp().has_activation());
  CHECK(choice_name(experiment.data()) == "glyphs");
  CHECK(experiment.data().has_batch_size());
  CHECK(experiment.data().glyphs().has_limit());
  CHECK(choice_name(experiment.pipeline().schedule()) == "one_f_one_b");
  CHECK(choice_name(experiment.pipeline().weights()) == "latest");
  CHECK(choice_name(experiment.optimizer().schedule()) == "constant");
  CHECK(experiment.optimizer().has_rule());
  CHECK(choice_name(experiment.clock().weight_gradient()) == "constant");
  CHECK(experiment.placement().devices_size() == 1);
  CHECK(experiment.placement().devices(0) == "cpu");
  CHECK(experiment.pipeline().cut_size() == 0);
  CHECK(experiment.record().has_order());
}

TEST_CASE("what is set survives resolving, and resolving twice changes nothing", "[messages]") {
  const auto once = resolved(with({"model=snn",
                                   "data.teacher.inputs=3",
                                   "clock.link=gamma",
                                   "clock.link.seconds=[0.5,1]",
                                   "seed=18446744073709551615"}));
  CHECK(once.model().snn().hidden_size() == 7);
  CHECK(once.data().teacher().inputs() == 3);
  CHECK(once.data().teacher().outputs() == 10);
  CHECK(once.clock().link().gamma().shape() == 100);
  CHECK(once.seed() == std::numeric_limits<std::uint64_t>::max());
  CHECK(MessageDifferencer::Equals(resolved(once), once));
}

TEST_CASE("every alternative can be chosen and resolves with its own defaults", "[messages]") {
  int count = 0;
  for_each_key([&](const std::string& path, const auto& field, const std::string&) {
    if (!field.containing_oneof()) {
      return;
    }
    ++count;
    INFO(path);
    const auto experiment = resolved(with({parent(path) + '=' + field.name()}));
    const std::string text = print_experiment(experiment);
    CHECK(text.find(' ' + field.name() + " {") != text.npos);
    CHECK(MessageDifferencer::Equals(parsed(text), experiment));
  });
  CHECK(count == 202);
}

TEST_CASE("a list of groups is read, printed and checked like any other", "[messages]") {
  const std::string text =
      "model { layers { layer { convolution { outputs: 8 } } layer { activation {} } "
      "layer { dense {} } } }";
  const auto experiment = resolved(parsed(text));
  const auto& layers = experiment.model().layers();
  REQUIRE(layers.layer_size() == 3);
  CHECK(layers.layer(0).convolution().kernel() == 3);
  CHECK(layers.layer(0).convolution().has_kernel());
  CHECK(layers.layer(1).activation().kind() == proto::LayerActivation::relu);
  CHECK(MessageDifferencer::Equals(parsed(print_experiment(experiment)), experiment));
  CHECK(MessageDifferencer::Equals(parsed(print_experiment_json(experiment)), experiment));
  const std::string json =
      R"({"model": {"layers": {"layer": [{"convolution": {"outputs": 8}}, "activation", )"
      R"({"dense": {}}]}}})";
  CHECK(MessageDifferencer::Equals(resolved(parsed(json)), experiment));

  auto wrong = parsed("model { layers { layer { dense {} } layer { dropout { rate: 2 } } } }");
  CHECK(resolve(wrong).error().message ==
        "model.layers.layer[1].dropout.rate: 2 is out of bounds (legal: 0..0.99)");
  CHECK(parse_error("model { layers { layer { dens {} } } }").find("did you mean \"dense\"?") !=
        std::string::npos);
  CHECK(parse_error(R"({"model": {"layers": {"layer": [{"dense": {}}, {"dens": {}}]}}})") ==
        "run.textproto:1: model.layers.layer[1] has no key \"dens\", did you mean \"dense\"? "
        "(legal: dense, convolution, batch_norm, group_norm, layer_norm, activation, max_pool, "
        "average_pool, dropout, embedding, attention, lstm, fork, join, custom, "
        "rms_norm, swiglu, mixture, concatenate, swap, upsample)");
  CHECK(set_error("model.layers.layer=dense") ==
        "model.layers.layer: model.layers.layer is a list of groups, write it in a file "
        "(layer { ... } for each)");
  CHECK(with({"model.layers.layer=[]"}).model().layers().layer_size() == 0);
}

TEST_CASE("options of registered schemes keep their kind, and optimizer.custom selects its rule",
          "[messages]") {
  proto::Experiment e;
  CHECK_FALSE(e.optimizer().has_custom());
  REQUIRE(resolve(e));
  CHECK_FALSE(e.optimizer().has_custom());  // nothing is made up for what has not been chosen
  REQUIRE(set_value(e, "optimizer.custom.name=own"));
  REQUIRE(set_value(e, "optimizer.custom.values.a=2"));
  REQUIRE(set_value(e, "optimizer.custom.values.b=max"));
  CHECK(e.optimizer().rule() == proto::OptimizerRule::custom);
  REQUIRE(resolve(e));
  const auto& values = e.optimizer().custom().values();
  REQUIRE(values.size() == 2);
  CHECK((values[0].value() == 2 && !values[0].has_text()));
  CHECK((values[1].text() == "max" && !values[1].has_value()));
  const proto::Experiment again = parsed(print_experiment(e));
  CHECK(MessageDifferencer::Equals(again, e));
  REQUIRE(set_value(e, "optimizer.rule=sgd"));
  CHECK(e.optimizer().rule() == proto::OptimizerRule::sgd);

  proto::Experiment file = parsed("optimizer { custom { name: 'own' } }");
  REQUIRE(resolve(file));
  CHECK(file.optimizer().rule() == proto::OptimizerRule::custom);
}

TEST_CASE("an entry of a table is set by its key", "[messages]") {
  const auto rule = [](const std::vector<std::string>& assignments) {
    return with(assignments).replicas().rule().custom();
  };
  const auto made = rule({"replicas.rule.custom.values.half_life=8",
                          "replicas.rule.custom.values.limit=2",
                          "replicas.rule.custom.values.half_life=4.5"});
  REQUIRE(made.values_size() == 2);
  CHECK(made.values(0).key() == "half_life");
  CHECK(made.values(0).value() == 4.5);
  CHECK(made.values(1).key() == "limit");
  CHECK(rule({"replicas.rule.custom.values.limit=2", "replicas.rule.custom.values=[]"})
            .values_size() == 0);
  for (const char* path : {"replicas.rule.custom.values",
                           "replicas.rule.custom.values.",
                           "replicas.rule.custom.values.a.b"}) {
    CHECK(set_error(std::string(path) + "=1") ==
          std::string(path) + ": an entry is set by replicas.rule.custom.values.NAME=value");
  }
  const auto other = rule({"replicas.rule.custom.values.a=two",
                           "replicas.rule.custom.values.b=true",
                           "replicas.rule.custom.values.c=1",
                           "replicas.rule.custom.values.c=one",
                           "replicas.rule.custom.values.d=one",
                           "replicas.rule.custom.values.d=1"});
  REQUIRE(other.values_size() == 4);
  CHECK((other.values(0).text() == "two" && !other.values(0).has_value()));
  CHECK((other.values(1).value() == 1 && !other.values(1).has_text()));
  CHECK((other.values(2).text() == "one" && !other.values(2).has_value()));
  CHECK((other.values(3).value() == 1 && !other.values(3).has_text()));
  CHECK_THAT(experiment_help(),
             Catch::Contains("replicas.rule.custom.values=[]       .NAME=value for each"));
}

TEST_CASE("numbers are held to their bounds, list elements too", "[messages]") {
  CHECK(resolve_error("pipeline.stages=0") ==
        "pipeline.stages: 0 is out of bounds (legal: 1..1024)");
  CHECK(resolve_error("pipeline.stages=1025") ==
        "pipeline.stages: 1025 is out of bounds (legal: 1..1024)");
  CHECK(resolve_error("stop.updates=-1") == "stop.updates: -1 is out of bounds (legal: 0..1e+12)");
  CHECK(resolve_error("optimizer.epsilon=0") ==
        "optimizer.epsilon: 0 is out of bounds (legal: > 0)");
  CHECK(resolve_error("pipeline.weights.pipemare.decay=1") ==
        "pipeline.weights.pipemare.decay: 1 is out of bounds (legal: > 0, <= 0.999)");
  CHECK(resolve_error("model.mlp.hidden=[64,0]") ==
        "model.mlp.hidden[1]: 0 is out of bounds (legal: 1..65536)");
  CHECK(resolve_error("clock.forward.seconds=[-0.5]") ==
        "clock.forward.seconds[0]: -0.5 is out of bounds (legal: 0..1e+06)");
  resolved(with({"pipeline.stages=1024", "optimizer.momentum=0.9999", "stop.target_accuracy=1"}));
}

TEST_CASE("numbers that are not finite are refused wherever they come from", "[messages]") {
  proto::Experiment experiment;
  experiment.mutable_optimizer()->set_learning_rate(std::numeric_limits<double>::infinity());
  CHECK(resolve(experiment).error().message ==
        "optimizer.learning_rate: inf is not a finite number");
  CHECK(parse_error("optimizer { learning_rate: nan }") ==
        "run.textproto: optimizer.learning_rate: nan is not a finite number");
  CHECK(parse_error("clock { link { seconds: [1, -inf] } }") ==
        "run.textproto: clock.link.seconds[1]: -inf is not a finite number");
  CHECK(parse_error("stop { epochs: 1e999 }") ==
        "run.textproto: stop.epochs: inf is not a finite number");
  CHECK(parse_error(R"({"stop": {"epochs": "Infinity"}})") ==
        "run.textproto:1: stop.epochs: \"Infinity\" is not a finite number");
  CHECK(parse_error(R"({"stop": {"epochs": NaN}})") ==
        "run.textproto:1: unexpected token, at \"NaN}}\"");
  CHECK(parse_error(R"({"stop": {"epochs": 1e999}})").find("run.textproto:1: number exceeds") == 0);
  CHECK(set_error("stop.epochs=inf") == "stop.epochs: \"inf\" is not a finite number");
  CHECK(set_error("stop.epochs=1e999") ==
        "stop.epochs: \"1e999\" is outside the range of 64-bit numbers");
}

// -- --set ---------------------------------------------------------------------------------------

TEST_CASE("--set takes every kind of value", "[messages]") {
  const auto experiment = with({"name=a run",
                                "seed = 7 ",
                                "optimizer.rule=adamw",
                                "optimizer.learning_rate=1e-3",
                                "optimizer.weight_decay=.5",
                                "record.evaluate=false",
                                "record.versions=true",
                                "stop.updates=-3"});
  CHECK(experiment.name() == "a run");
  CHECK(experiment.seed() == 7);
  CHECK(experiment.optimizer().rule() == proto::OptimizerRule::adamw);
  CHECK(experiment.optimizer().learning_rate() == 1e-3);
  CHECK(experiment.optimizer().weight_decay() == 0.5);
  CHECK(!experiment.record().evaluate());
  CHECK(experiment.record().versions());
  CHECK(experiment.stop().updates() == -3);
}

TEST_CASE("texts are bare or quoted", "[messages]") {
  CHECK(with({R"(name="a run ")"}).name() == "a run ");
  CHECK(with({R"(name='a "run"')"}).name() == "a \"run\"");
  CHECK(with({R"(name="a \"b\" \\")"}).name() == "a \"b\" \\");
  CHECK(with({"name=it's"}).name() == "it's");
  CHECK(with({"name=a=b"}).name() == "a=b");
  CHECK(with({"name="}).name().empty());
  CHECK(with({"name=[a]"}).name() == "[a]");
  CHECK(with({"optimizer.rule='sgd'"}).optimizer().rule() == proto::OptimizerRule::sgd);
  CHECK(set_error(R"(name="a)") == R"(name: '"a' has no closing quote)");
  CHECK(set_error(R"(name="a" b)") == R"(name: '"a" b' goes on after its closing quote)");
}

TEST_CASE("lists are [a,b], [] or one element, and replace what was there", "[messages]") {
  const auto hidden = [](const proto::Experiment& experiment) {
    const auto& list = experiment.model().mlp().hidden();
    return std::vector<std::int64_t>(list.begin(), list.end());
  };
  using List = std::vector<std::int64_t>;
  CHECK(hidden(with({"model.mlp.hidden=[64, 32]"})) == List{64, 32});
  CHECK(hidden(with({"model.mlp.hidden=[64,32]", "model.mlp.hidden=8"})) == List{8});
  CHECK(with({"pipeline.cut=[3,4]", "pipeline.cut=[ ]"}).pipeline().cut().empty());
  for (const char* none : {"model.mlp.hidden=[]", "model.mlp.hidden=[ ]"}) {
    CHECK(set_error(none) ==
          "model.mlp.hidden: an empty list would be taken for the default, [256,128]; write that, "
          "or at least one value");
  }

  const auto devices = with({R"(placement.devices=["a,b", cuda:1 ,'c'])"}).placement().devices();
  REQUIRE(devices.size() == 3);
  CHECK(devices[0] == "a,b");
  CHECK(devices[1] == "cuda:1");
  CHECK(devices[2] == "c");

  const std::string hint = ", a list is written [a,b] or []";
  CHECK(set_error("model.mlp.hidden=64,32") ==
        "model.mlp.hidden: \"64,32\" is not a whole number" + hint);
  CHECK(set_error("model.mlp.hidden=[64") ==
        "model.mlp.hidden: \"[64\" lacks its closing bracket" + hint);
  CHECK(set_error("model.mlp.hidden=[") ==
        "model.mlp.hidden: \"[\" lacks its closing bracket" + hint);
  CHECK(set_error("model.mlp.hidden=[64,]") ==
        "model.mlp.hidden: \"[64,]\" lacks an element" + hint);
  CHECK(set_error("model.mlp.hidden=") == "model.mlp.hidden: \"\" lacks an element" + hint);
  CHECK(set_error("model.mlp.hidden=[64,1.5]") ==
        "model.mlp.hidden: \"1.5\" is not a whole number");
}

TEST_CASE("a path through a choice selects, and keeps what is selected already", "[messages]") {
  auto experiment = with({"model.mlp.activation=tanh", "model.mlp.hidden=[64]"});
  CHECK(experiment.model().mlp().activation() == proto::tanh);
  experiment = with({"model=mlp"}, experiment);
  CHECK(experiment.model().mlp().activation() == proto::tanh);
  experiment = with({"model=snn"}, experiment);
  CHECK(choice_name(experiment.model()) == "snn");
  experiment = with({"model=mlp"}, experiment);
  CHECK(!experiment.model().mlp().has_activation());

  experiment = with({"data.batch_size=32", "data=mnist"});
  CHECK(experiment.data().batch_size() == 32);
  CHECK(choice_name(with({"data.batch_size=32"}).data()).empty());
  CHECK(with({"pipeline.schedule.interleaved.chunks=4"})
            .pipeline()
            .schedule()
            .interleaved()
            .chunks() == 4);
}

TEST_CASE("the weights nesterov bring nadamw along, where nothing else has been chosen",
          "[messages]") {
  const auto optimizer = with({"pipeline.weights=nesterov"}).optimizer();
  CHECK(optimizer.rule() == proto::OptimizerRule::nadamw);
  CHECK(optimizer.momentum() == 0.99);
  CHECK(optimizer.learning_rate() == 0.001);

  const auto faster =
      with({"optimizer.learning_rate=0.01", "pipeline.weights=nesterov"}).optimizer();
  CHECK(faster.rule() == proto::OptimizerRule::nadamw);
  CHECK(faster.momentum() == 0.99);
  CHECK(faster.learning_rate() == 0.01);
  CHECK(with({"optimizer.momentum=0.5", "pipeline.weights=nesterov"}).optimizer().momentum() ==
        0.5);
  // What does not go with it is left for the check of the whole to refuse.
  const auto sgd = with({"optimizer.rule=sgd", "pipeline.weights=nesterov"}).optimizer();
  CHECK(sgd.rule() == proto::OptimizerRule::sgd);
  CHECK(!sgd.has_learning_rate());

  const auto nadam =
      with({"optimizer.rule=nadam", "optimizer.momentum=0.8", "pipeline.weights=nesterov"})
          .optimizer();
  CHECK(nadam.rule() == proto::OptimizerRule::nadam);
  CHECK(nadam.momentum() == 0.8);
  CHECK(!nadam.has_learning_rate());

  const auto later =
      with({"pipeline.weights=nesterov", "optimizer.learning_rate=0.01"}).optimizer();
  CHECK(later.learning_rate() == 0.01);
  CHECK(!with({"pipeline.weights=stash"}).has_optimizer());
  CHECK(!parsed("pipeline { weights { nesterov {} } }").has_optimizer());
}

TEST_CASE("--set names what is wrong, what is near and what is legal", "[messages]") {
  // keys
  CHECK(set_error("pipeline.stagez=4") ==
        "pipeline.stagez: pipeline has no key \"stagez\", did you mean \"stages\"?" + kPipeline);
  CHECK(set_error("stages=4") ==
        "stages: an experiment has no key \"stages\", did you mean \"pipeline.stages\"?" +
            kTopLevel);
  CHECK(set_error("batchSize=4") ==
        "batchSize: an experiment has no key \"batchSize\", did you mean \"data.batch_size\"?" +
            kTopLevel);
  CHECK(set_error("model.hidden=[4]") ==
        "model.hidden: model has no key \"hidden\", did you mean \"model.mlp.hidden\" or "
        "\"model.snn.hidden\" or \"model.layers.layer.swiglu.hidden\"? (legal: linear, mlp, "
        "lenet5, snn, "
        "quadratic, vgg, resnet, lstm, gpt, layers, logistic, custom, llama, label_smoothing)");
  CHECK(set_error("data.images.path=x").find("did you mean \"folder\"?") != std::string::npos);
  CHECK(set_error("data.imagez.path=x").find("did you mean") == std::string::npos);
  CHECK(set_error("optimizer.rate=1").find("did you mean \"learning_rate\"?") != std::string::npos);
  CHECK(set_error("qqq=4") == "qqq: an experiment has no key \"qqq\"" + kTopLevel);
  CHECK(set_error("pipeline.=4") == "pipeline.: pipeline has no key \"\"" + kPipeline);
  CHECK(set_error(".=4") == ".: an experiment has no key \"\"" + kTopLevel);
  CHECK(set_error("pipeline..stages=4") ==
        "pipeline..stages: pipeline has no key \"\"" + kPipeline);
  CHECK(set_error("seed.x=4") == "seed.x: seed is a value and has no keys");
  CHECK(set_error("pipeline.weights.stash.qqq=1") ==
        "pipeline.weights.stash.qqq: pipeline.weights.stash has no key \"qqq\"");

  // choices
  CHECK(set_error("pipeline.schedule=gpype") ==
        "pipeline.schedule: \"gpype\" is not one of its values, did you mean \"gpipe\"?" +
            kSchedules);
  CHECK(set_error("pipeline.schedule=dual_pip") ==
        "pipeline.schedule: \"dual_pip\" is not one of its values, did you mean \"dual_pipe\"?" +
            kSchedules);
  CHECK(set_error("pipeline.schedule=") ==
        "pipeline.schedule: \"\" is not one of its values" + kSchedules);
  CHECK(set_error("clock.link=0.5") ==
        "clock.link: \"0.5\" is not one of its values (legal: constant, gamma, log_normal); beside "
        "them there is clock.link.seconds");
  CHECK(set_error("data=batch_size").find("\"batch_size\" is not one of its values") !=
        std::string::npos);
  CHECK(set_error("model.mlp=4") ==
        "model.mlp: is an alternative, choose it by model=mlp, or set one of its keys (legal: "
        "hidden, activation, initial)");
  CHECK(set_error("pipeline.weights.stash=true") ==
        "pipeline.weights.stash: is an alternative, choose it by pipeline.weights=stash");
  CHECK(set_error("pipeline=4") == "pipeline: is a group, set one of its keys" + kPipeline);

  // values
  CHECK(set_error("optimizer.rule=sdg") ==
        "optimizer.rule: \"sdg\" is not one of its values, did you mean \"sgd\"?" + kRules);
  CHECK(set_error("optimizer.rule=3") == "optimizer.rule: \"3\" is not one of its values" + kRules);
  CHECK(set_error("pipeline.stages=1.5") == "pipeline.stages: \"1.5\" is not a whole number");
  CHECK(set_error("pipeline.stages=") == "pipeline.stages: \"\" is not a whole number");
  CHECK(set_error("pipeline.stages=4x") == "pipeline.stages: \"4x\" is not a whole number");
  CHECK(set_error("pipeline.stages=9223372036854775808") ==
        "pipeline.stages: \"9223372036854775808\" is outside the range of 64-bit numbers");
  CHECK(set_error("seed=-1") == "seed: \"-1\" is not a whole number of at least 0");
  CHECK(set_error("optimizer.momentum=big") ==
        "optimizer.momentum: \"big\" is not a finite number");
  CHECK(set_error("record.order=yes") == "record.order: \"yes\" is neither true nor false");

  // assignments
  const std::string such_as = " is not path=value, such as pipeline.stages=4";
  CHECK(set_error("pipeline.stages") == "\"pipeline.stages\"" + such_as);
  CHECK(set_error("=4") == "\"=4\"" + such_as);
  CHECK(set_error("") == "\"\"" + such_as);
  CHECK(set_error("name=\xff") == "name: \"\\xff\" is not valid UTF-8");
  CHECK(set_error("name=" + std::string(1 << 20, 'x')) == "name: the value is longer than 1 MiB");
  CHECK(set_error(std::string(100000, 'x') + "=1").size() < 400);
  CHECK(set_error("na\nme=1").find('\n') == std::string::npos);
}

// -- textproto -----------------------------------------------------------------------------------

TEST_CASE("a textproto is read", "[messages]") {
  const auto experiment = parsed(
      "# a comment\n"
      "name: \"K\303\266ln\"\n"
      "model { mlp { hidden: [64, 32] activation: gelu } }\n"
      "pipeline { stages: 2 schedule { gpipe {} } weights { stash {} } }\n");
  CHECK(experiment.name() == "K\303\266ln");
  CHECK(experiment.model().mlp().hidden(1) == 32);
  CHECK(choice_name(experiment.pipeline().schedule()) == "gpipe");
  CHECK(MessageDifferencer::Equals(parsed(""), proto::Experiment{}));
  CHECK(parsed("\xEF\xBB\xBF seed: 3").seed() == 3);
  CHECK(parsed("# a comment, whose line \\r alone ends\rseed: 4\r").seed() == 4);
  CHECK(parsed("# and others\r\n# as here\rseed: 5\n").seed() == 5);
}

TEST_CASE("a textproto's errors name line, key, what is near and what is legal", "[messages]") {
  CHECK(parse_error("\n\npipeline {\n\tstagez: 3 }") ==
        "run.textproto:4: pipeline has no key \"stagez\", did you mean \"stages\"?" + kPipeline);
  CHECK(parse_error("stages: 3") ==
        "run.textproto:1: an experiment has no key \"stages\", did you mean \"pipeline.stages\"?" +
            kTopLevel);
  CHECK(parse_error("qqq { count: 3 }") ==
        "run.textproto:1: an experiment has no key \"qqq\"" + kTopLevel);
  CHECK(parse_error("clock { forward { seconds: 1 } link { secnds: 1 } }") ==
        "run.textproto:1: clock.link has no key \"secnds\", did you mean \"seconds\"? (legal: "
        "seconds, constant, gamma, log_normal)");
  CHECK(parse_error("optimizer { rule: sdg }") ==
        "run.textproto:1: optimizer.rule: \"sdg\" is not one of its values, did you mean \"sgd\"?" +
            kRules);
  CHECK(parse_error("optimizer { rule: 99 }") ==
        "run.textproto:1: optimizer.rule: \"99\" is not one of its values" + kRules);
  CHECK(parse_error("optimizer { rule: \"sgd\" }") ==
        "run.textproto:1: optimizer.rule: \"sgd\" has to be written without quotes");
  CHECK(parse_error("name: # a { comment\n 'x{' pipeline { schedule: gpipe }") ==
        "run.textproto:2: pipeline.schedule: a choice is written schedule { gpipe {} }");
  CHECK(parse_error("pipeline { schedule: \"gpype\" }") ==
        "run.textproto:1: pipeline.schedule: \"gpype\" is not one of its values, did you mean "
        "\"gpipe\"?" +
            kSchedules);
  CHECK(parse_error("pipeline: 4") ==
        "run.textproto:1: pipeline: \"4\" stands where a group is due, write pipeline { ... }" +
            kPipeline);
  CHECK(parse_error("pipeline { stages: 1.5 }") ==
        "run.textproto:1: pipeline.stages: \"1.5\" is not a whole number");
  CHECK(parse_error("model { mlp { hidden: [1,\n2.5] } }") ==
        "run.textproto:2: model.mlp.hidden: \"2.5\" is not a whole number");
  CHECK(parse_error("seed: 18446744073709551616") ==
        "run.textproto:1: seed: \"18446744073709551616\" is outside the range of 64-bit numbers");
  CHECK(parse_error("optimizer { learning_rate: fast }") ==
        "run.textproto:1: optimizer.learning_rate: \"fast\" is not a finite number");
  CHECK(parse_error("record { order: yes }") ==
        "run.textproto:1: record.order: \"yes\" is neither true nor false");
  CHECK(parse_error("name: 5") == "run.textproto:1: name: \"5\" has to be written in quotes");
}

TEST_CASE("nothing in a textproto is silently dropped", "[messages]") {
  CHECK(parse_error("pipeline { stages: 1 stages: 2 }") ==
        "run.textproto:1: pipeline.stages: is given twice");
  CHECK(parse_error("stop { updates: 1 }\nstop { epochs: 1 }") ==
        "run.textproto:2: stop: is given twice");
  CHECK(parse_error("pipeline { schedule { gpipe {} sequential {} } }") ==
        "run.textproto:1: pipeline.schedule: gpipe and sequential are alternatives, choose one");
  CHECK(parse_error("seed: 1 }").find("run.textproto:1: ") == 0);
  CHECK(parse_error(std::string("seed: 1 \0 seed: 2", 17)).find("run.textproto:1: ") == 0);
  CHECK(parse_error("[troupe.proto.doc]: \"x\"").find("run.textproto:1: extension") == 0);
  CHECK(parse_error("pipeline { stages: 1") ==
        "run.textproto:1: the text ends too early, after pipeline.stages");
  CHECK(parse_error("model {\n mlp { hidden: [64,") ==
        "run.textproto:2: the text ends inside a list, model.mlp.hidden");
  CHECK(parse_error("model {\n mlp { hidden: [64") ==
        "run.textproto:2: the text ends inside a list, model.mlp.hidden");
  CHECK(parse_error("pipeline { stages:") ==
        "run.textproto:1: the text ends too early, after pipeline.stages");
}

// -- JSON ----------------------------------------------------------------------------------------

TEST_CASE("JSON is read, a choice nested or as a plain string", "[messages]") {
  const auto experiment = parsed(R"( {
    "name": "K\u00f6ln",
    "seed": "18446744073709551615",
    "model": {"mlp": {"hidden": [64, 3.2e1], "activation": "gelu"}},
    "optimizer": {"learning_rate": 1, "momentum": "0.5"},
    "record": {"order": false},
    "pipeline": {"stages": 2, "schedule": "gpipe", "weights": {"pipemare": {"decay": 0.5}}}
  })");
  CHECK(experiment.name() == "K\303\266ln");
  CHECK(experiment.seed() == std::numeric_limits<std::uint64_t>::max());
  CHECK(experiment.model().mlp().hidden(1) == 32);
  CHECK(experiment.model().mlp().activation() == proto::gelu);
  CHECK(experiment.optimizer().learning_rate() == 1);
  CHECK(experiment.optimizer().momentum() == 0.5);
  CHECK(!experiment.record().order());
  CHECK(choice_name(experiment.pipeline().schedule()) == "gpipe");
  CHECK(experiment.pipeline().weights().pipemare().decay() == 0.5);
  CHECK(MessageDifferencer::Equals(parsed("{}"), proto::Experiment{}));
}

TEST_CASE("JSON's errors name line, path, what is near and what is legal", "[messages]") {
  CHECK(parse_error("{\n\"pipeline\": {\n\"stagez\": 3}}", "run.json") ==
        "run.json:3: pipeline has no key \"stagez\", did you mean \"stages\"?" + kPipeline);
  CHECK(parse_error(R"({"batchSize": 3})", "run.json") ==
        "run.json:1: an experiment has no key \"batchSize\", did you mean \"data.batch_size\"?" +
            kTopLevel);
  CHECK(parse_error(R"({"optimizer": {"rule": "sdg"}})", "run.json") ==
        "run.json:1: optimizer.rule: \"sdg\" is not one of its values, did you mean \"sgd\"?" +
            kRules);
  CHECK(parse_error(R"({"pipeline": {"schedule": "gpype"}})", "run.json") ==
        "run.json:1: pipeline.schedule: \"gpype\" is not one of its values, did you mean "
        "\"gpipe\"?" +
            kSchedules);
  CHECK(parse_error(R"({"pipeline": 3})", "run.json") ==
        "run.json:1: pipeline: 3 stands where a group is due, write {...}" + kPipeline);
  CHECK(parse_error(R"({"pipeline": {"stages": 1.5}})", "run.json") ==
        "run.json:1: pipeline.stages: \"1.5\" is not a whole number");
  CHECK(parse_error(R"({"pipeline": {"stages": true}})", "run.json") ==
        "run.json:1: pipeline.stages: true is not a whole number");
  CHECK(parse_error(R"({"pipeline": {"stages": null}})", "run.json") ==
        "run.json:1: pipeline.stages: null is not a whole number");
  CHECK(parse_error(R"({"pipeline": {"stages": [1]}})", "run.json") ==
        "run.json:1: pipeline.stages: [...] is not a whole number");
  CHECK(parse_error(R"({"record": {"order": "true"}})", "run.json") ==
        "run.json:1: record.order: the text \"true\" is not true or false");
  CHECK(parse_error(R"({"name": 3})", "run.json") == "run.json:1: name: 3 is not a text");
  CHECK(parse_error(R"({"optimizer": {"rule": 3}})", "run.json") ==
        "run.json:1: optimizer.rule: 3 is not a name");
  CHECK(parse_error(R"({"model": {"mlp": {"hidden": 4}}})", "run.json") ==
        "run.json:1: model.mlp.hidden: 4 is not a list, write [a, b]");
  CHECK(parse_error(R"({"model": {"mlp": {"hidden": [4, "x"]}}})", "run.json") ==
        "run.json:1: model.mlp.hidden[1]: \"x\" is not a whole number");
  CHECK(parse_error(R"({"seed": 9007199254740993})", "run.json") ==
        "run.json:1: seed: 9007199254740992 is too large to be exact in JSON, put it in quotes");
  CHECK(parse_error("{\"seed\": 1,\n\"name\" 2}", "run.json") ==
        "run.json:2: expected : between key:value pair, at \"2}\"");
  CHECK(parse_error("{", "run.json") ==
        "run.json:1: unexpected end of string; Expected an object key or }");
}

TEST_CASE("nothing in JSON is silently dropped", "[messages]") {
  CHECK(parse_error("{\"seed\": 1, \"seed\": 1}", "run.json") ==
        "run.json: the key \"seed\" is given twice");
  CHECK(parse_error(R"({"stop": {"updates": 1}, "stop": {}})", "run.json") ==
        "run.json: the key \"stop\" is given twice");
  CHECK(parse_error(R"({"pipeline": {"schedule": {"gpipe": {}, "sequential": {}}}})", "run.json") ==
        "run.json:1: pipeline.schedule: gpipe and sequential are alternatives, choose one");
  CHECK(parse_error("{} {}", "run.json").find("run.json:1: parsing terminated before end") == 0);
}

// -- whatever comes ------------------------------------------------------------------------------

TEST_CASE("what is too long, too deep or no UTF-8 is refused at once", "[messages]") {
  CHECK(parse_error(std::string((1 << 20) + 1, ' ')) ==
        "run.textproto: is longer than an experiment may be, 1 MiB");
  CHECK(parse_error("seed: 1\nname: \"\xC0\x80\"") ==
        "run.textproto:2: \"\\xc0\" is not valid UTF-8");
  CHECK(parse_error("name: \"\\xff\"") == "run.textproto: name: \"\\xff\" is not valid UTF-8");
  CHECK(parse_error("name: \"\\355\\240\\200\"").find("not valid UTF-8") != std::string::npos);
  CHECK(!parse_experiment(R"({"name": "\ud800"})", "run.json"));

  const std::size_t many = 300000;
  const std::string open(many, '[');
  std::string nested = "{\"model\":";
  for (std::size_t i = 0; i < many / 10; ++i) {
    nested += "{\"model\":";
  }
  CHECK(parse_error("{\"name\": " + open, "run.json") ==
        "run.json: 300001 brackets are open at once, more than 16");
  CHECK(parse_error(nested, "run.json") ==
        "run.json: 30001 brackets are open at once, more than 16");
  CHECK(parse_error("name: " + open).size() < 400);
  CHECK(parse_error("model { model " + std::string(many, '{')).size() < 400);
  CHECK(parse_error(std::string(many, 'x') + ": 1").size() < 400);
  CHECK(parse_error("{\"" + std::string(many, 'x') + "\": 1}").size() < 400);
  CHECK(parse_error("{" + std::string(many, 'x')).size() < 400);
  CHECK(parse_error("name: \"" + std::string(many, 'x')).size() < 400);
}

TEST_CASE("what is printed reads back the same, as textproto and as JSON", "[messages]") {
  const auto experiment = resolved(with({R"(name=a "b" \ )"
                                         "\t\n\x01 K\303\266ln",
                                         "seed=18446744073709551615",
                                         "model=lenet5",
                                         "data.mnist.path=/some/where",
                                         "optimizer.learning_rate=0.1",
                                         "optimizer.clip_norm=1e22",
                                         "optimizer.weight_decay=5e-324",
                                         "clock.flops=1.7976931348623157e308",
                                         "clock.link.seconds=[0.30000000000000004,-0,1e-22]",
                                         "pipeline.cut=[1,9007199254740993]"}));
  const std::string text = print_experiment(experiment);
  const std::string json = print_experiment_json(experiment);
  INFO(text << json);
  CHECK(text.substr(0, 2) == "# ");
  CHECK(text == print_experiment(parsed(text)));
  CHECK(json == print_experiment_json(parsed(json)));
  CHECK(parsed(text).SerializeAsString() == experiment.SerializeAsString());
  CHECK(parsed(json).SerializeAsString() == experiment.SerializeAsString());
  CHECK(text.find("learning_rate: 0.1\n") != text.npos);
  CHECK(json.find("\"learning_rate\": 0.1,\n") != json.npos);
  CHECK(json.find("\"batch_size\": 128,\n") != json.npos);
  CHECK(json.find("\"seed\": \"18446744073709551615\"") != json.npos);
  CHECK(json.find("\"cut\": [1, \"9007199254740993\"]") != json.npos);
}

TEST_CASE("the help has every key with its default, the way --set takes it", "[messages]") {
  const std::string help = '\n' + experiment_help();
  for_each_key([&](const std::string& path, const auto& field, const std::string& selection) {
    INFO(path);
    const std::size_t found = std::min(help.find(' ' + path + '='), help.find('\n' + path + '='));
    const bool choice = field.message_type() && field.message_type()->FindOneofByName("kind");
    if (field.message_type() && !choice && !field.is_repeated()) {
      CHECK(found == help.npos);
      return;
    }
    REQUIRE(found != help.npos);
    const std::size_t end = help.find_first_of(" \n", found + 1);
    const auto as_in_help = with({help.substr(found + 1, end - found - 1)});
    // What stands under optimizer.custom selects that rule, as the keys of an alternative select it.
    const std::string selects =
        path.starts_with("optimizer.custom.") ? "optimizer.custom.name=" : selection;
    const auto default_of_it =
        with(selects.empty() ? std::vector<std::string>{} : std::vector{selects});
    CHECK(MessageDifferencer::Equals(resolved(as_in_help), resolved(default_of_it)));
  });
}

TEST_CASE("the help is narrow and in columns", "[messages]") {
  const std::string help = experiment_help();
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 100);
    CHECK((line.empty() || line.back() != ' '));
  }
  CHECK(
      help.find("\n    model.mlp.hidden=[256,128]             integers 1..65536     width of each "
                "hidden layer\n") != help.npos);
  CHECK(help.find("\n    sgd                                    w -= eta g\n") != help.npos);
  CHECK(help.find("\n  pipeline.schedule=one_f_one_b            choice ") != help.npos);
  CHECK(help.find("\n    spike_compensation ") != help.npos);
}

}  // namespace experiment_test
