// Every row of the tables that an experiment is held to: what it refuses, and what it says. And that
// what is wrong with an experiment alone is told before its data is opened.
#include "apps/topologies/checks.hpp"

#include "apps/run/phases.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/text_file.hpp"

#include <map>
#include <string>
#include <vector>

namespace checks_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct Refused {
  std::vector<std::string> set;
  std::string says;  // a part of it
  /// It is another row, or the machine, that refuses this first.
  bool row_alone = false;
  std::string key{};  // that the sentence begins with, where it is none of those that are set
};

using Cases = std::map<std::string, Refused>;

BoxedExperiment task(const std::vector<std::string>& set = {}) {
  return experiment(tiny_task("10,9,8"), set);
}

/// Two keys, of which one is the other, or a group that it is in.
bool related(const std::string& one, const std::string& other) {
  const std::string& outer = one.size() < other.size() ? one : other;
  const std::string& inner = one.size() < other.size() ? other : one;
  return inner.starts_with(outer) && (inner.size() == outer.size() || inner[outer.size()] == '.');
}

/// The sentence begins with a key that the case has set, or with that which the case names.
bool begins_with_its_key(const Refused& refused, const std::string& sentence) {
  const std::string key = sentence.substr(0, sentence.find(": "));
  return key == refused.key ||
         std::any_of(refused.set.begin(), refused.set.end(), [&](const std::string& assignment) {
           return related(key, assignment.substr(0, assignment.find('=')));
         });
}

/// The sentence is "KEY: what is wrong", and the experiment has such a key.
bool begins_with_a_key(const std::string& sentence) {
  const std::string path = sentence.substr(0, sentence.find(": "));
  const auto* group = proto::Experiment::descriptor();
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const auto* field = group ? group->FindFieldByName(path.substr(begin, end - begin)) : nullptr;
    if (!field) {
      return false;
    }
    group = field->message_type();
    begin = end + 1;
  }
  return !path.empty() && path.size() < sentence.size();
}

/// Of a network with batch norm.
BoxedExperiment normalised(const std::vector<std::string>& set) {
  return experiment(
      "model { layers { layer { dense { outputs: 4 } } layer { batch_norm {} } layer { dense {} } "
      "} "
      "} data { teacher { inputs: 6 outputs: 3 hidden: 8 train: 96 test: 8 } } stop { updates: 2 }",
      set);
}

std::string told(const proto::Experiment& e) {
  const auto made = make_blueprint(e);
  return made ? "" : made.error().message;
}

const std::string kAsync = "pipeline.schedule=async_one_f_one_b";
const std::string kSandblaster = "replicas.exchange=sandblaster";
const std::vector<std::string> kSparse{
    "model=logistic", "data=sparse", "optimizer.rule=sgd", "replicas.exchange=hogwild"};

std::vector<std::string> sparse(const std::string& more) {
  std::vector<std::string> set = kSparse;
  set.push_back(more);
  return set;
}

const Cases& of_experiments() {
  static const Cases all{
      {"devices_of_all_stages",
       {{"placement.devices=[cpu,cpu,cpu]"},
        "one device for all stages, or one for each of the 1"}},
      {"devices_that_are_there", {{"placement.devices=[cuda:77]"}, "placement.devices: "}},
      {"nccl_between_gpus",
       {{"replicas.count=2", "replicas.exchange.synchronous.reduction=nccl"},
        "it would be between cpu, cpu; use a placement.devices that gives each replica a GPU "
        "of its own, or reduction ring or tree"}},
      {"names_on_processes", {{"placement.on=[\"stage-*\"]"}, "is not NAMES=PROCESS"}},
      {"precision_of_the_devices", {{"placement.precision=tf32"}, "placement.precision: "}},
      {"quadratic_on_cpu",
       {{"model=quadratic", "placement.devices=[cuda:0]"}, "quadratic runs on cpu only", true}},
      {"parts_of_a_mixture_alike",
       {{"model.llama.experts=2", "pipeline.width=2", "placement.devices=[cpu,cuda:0]"},
        "have to compute alike, and cpu and cuda:0 do not",
        true}},
      {"copies_of_stashed_weights",
       {{"pipeline.stages=3", "pipeline.copies=[2,1]", kAsync, "pipeline.weights=latest"},
        "use pipeline.weights stash"}},
      {"copies_in_one_pipe",
       {{"pipeline.stages=3",
         "pipeline.copies=[2,1]",
         kAsync,
         "pipeline.weights=stash",
         "replicas.count=2"},
        "they are for one replica"}},
      {"copies_without_servers",
       {{"pipeline.stages=3",
         "pipeline.copies=[2,1]",
         kAsync,
         "pipeline.weights=stash",
         "replicas.exchange.diloco.period=4"},
        "servers would hear of each"}},
      {"copies_on_cpu",
       {{"pipeline.stages=3", "pipeline.copies=[2,1]", "placement.devices=[cuda:0]"},
        "they run on cpu only",
        true}},
      {"copies_of_chosen_chunks",
       {{"pipeline.stages=3",
         "pipeline.copies=[2,1]",
         kAsync,
         "pipeline.weights=stash",
         "pipeline.partition=mixed"},
        "mixed gives stages several chunks"}},
      {"both_ways_by_backpropagation",
       {{"pipeline.stages=2",
         "pipeline.micro_batches=4",
         "pipeline.schedule=dual_pipe",
         "pipeline.width=2"},
        "dual_pipe is for whole chunks"}},
      {"both_ways_on_cpu",
       {{"pipeline.stages=2",
         "pipeline.micro_batches=4",
         "pipeline.schedule=dual_pipe",
         "placement.devices=[cuda:0]"},
        "dual_pipe runs on cpu only",
        true}},
      {"what_is_cut_in_width",
       {{"pipeline.width=2", "optimizer.rule=muon"}, "needs a layer's whole matrix"}},
      {"schedule", {{"pipeline.schedule.custom.name=none_such"}, "has not been registered"}},
      {"optimizer", {{"optimizer.rule=custom", "optimizer.custom.name=none_such"}, "none_such"}},
      {"model", {{"model.custom.name=none_such"}, "has not been registered"}},
      {"data", {{"data.custom.name=none_such"}, "has not been registered"}},
      {"replicas", {{"replicas.rule.softsync.n=5"}, "5 is more than replicas.count 1"}},
      {"weights",
       {{"pipeline.weights=geometric", "optimizer.rule=nadam"}, "goes with optimizer.rule"}},
      {"decoupled",
       {{"pipeline.stages=2", "decoupled=local_loss", "optimizer.clip_norm=1"}, "use 0"}},
      {"schedule_keys",
       {{"pipeline.stages=2", "pipeline.stage_of=[0,1,2]"}, "there is no stage 2"}},
      {"profiled_or_stage_of",
       {{"pipeline.stages=2", "pipeline.stage_of=[0,1,0]", "pipeline.partition=profiled"},
        "profiled makes all chunks alike"}},
      {"mixed_or_schedule",
       {{"pipeline.stages=2",
         "pipeline.schedule.interleaved.chunks=2",
         "pipeline.micro_batches=2",
         "pipeline.partition=mixed"},
        "so does pipeline.schedule interleaved"}},
      {"mixed_finds_both",
       {{"pipeline.stages=2", "pipeline.stage_of=[0,1,0]", "pipeline.partition=mixed"},
        "there is only pipeline.stage_of"}},
      {"micro_batches_of_a_batch", {{"pipeline.micro_batches=3"}, "3 does not divide"}},
      {"growth_of_one_replica",
       {{"stop.epochs=2", "data.growth.at=[0.5]", "replicas.count=2"}, "with one replica only"}},
      {"growth_in_order",
       {{"stop.epochs=2", "data.growth.at=[0.5,0.5]"}, "the points must ascend"}},
      {"something_to_learn", {{"data=none"}, "none has nothing to learn for model mlp"}},
      {"slowness_of_all_replicas",
       {{"replicas.count=3", "clock.workers.slowness=[1,2]"}, "each of the 3; there are 2"}},
      {"hold_back_of_all_replicas",
       {{"replicas.count=3", "clock.workers.hold_back=[1,2]"}, "each of the 3; there are 2"}},
      {"exchange_of_all_replicas",
       {{"replicas.count=3", "clock.exchange.seconds=[1,2]"}, "each of the 3; there are 2"}},
      {"straggler_among_replicas",
       {{"clock.workers.straggler.permanent.replica=1"}, "1 of replicas.count 1"}},
      {"hosts_of_faults",
       {{"clock.faults.crashes.at=[1]", "clock.faults.crashes.host=[2]"}, "2 of 2 hosts"}},
      {"lasting_faults",
       {{"clock.faults.freezes.every=0.01"}, "each for 1, and the run hardly goes on"}},
      {"replicas_that_come_back",
       {{"clock.faults.crashes.back=1"}, "cannot come back where there is one replica"}},
      {"copies_of_servers", {{"replicas.copies=2"}, "there is no server to copy"}},
      {"entries_of_copies", {{"placement.copies=[\"stage-0=9\"]"}, "with a count from 1 to 8"}},
      {"copies_in_processes",
       {{"replicas.copies=2", "replicas.count=2", "extension.custom.name=nobody"},
        "share memory with those that they overhear, so nothing has copies"}},
      {"copies_with_an_order",
       {{"placement.copies=[\"stage-0=2\"]", "clock { faults { wire { numbered: false } } }"},
        "keep the order of messages"}},
      {"an_end", {{"stop.updates=0"}, "the run would never end"}},
      {"extension", {{"extension.custom.name=nobody"}, "has not been registered"}},
      {"accuracy_is_evaluated", {{"stop.target_accuracy=0.5"}, "needs record.evaluate"}},
      {"the_best_is_evaluated",
       {{"stop.patience=2", "record.evaluate=false"}, "need record.evaluate"}},
      {"the_best_of_pinned_weights",
       {sparse("stop.patience=2"), "do not go with sandblaster or sparse rows", true}},
      {"each_replica_has_weights",
       {{"record.each_replica=always", "replicas.count=2", "replicas.exchange=averaging"},
        "share no server"}},
      {"a_length_for_the_rate",
       {{"stop.updates=0", "stop.seconds=1", "optimizer.schedule=cosine"}, "must be set"}},
      {"angle_of_one_replica",
       {{"record.angle_every=1", "replicas.count=2"}, "shares its weights with nobody"}},
      {"angle_on_cpu",
       {{"record.angle_every=1", "placement.devices=[cuda:0]"}, "on cpu only", true}},
      {"angle_of_labels",
       {{"record.angle_every=1", "model=quadratic"}, "without samples or labels", true}},
      {"sparse_hogwild_in_one_stage", {sparse("pipeline.micro_batches=2"), "row by row"}},
      {"sparse_hogwild_on_cpu", {sparse("placement.devices=[cuda:0]"), "on cpu only", true}},
      {"sparse_hogwild_in_fp32", {sparse("placement.precision=bf16"), "use fp32", true}},
      {"sparse_hogwild_labels", {sparse("model.label_smoothing=0.1"), "labels as they are"}},
      {"sparse_hogwild_by_sgd", {sparse("optimizer.rule=momentum"), "set sgd"}},
      {"sparse_hogwild_touches_no_more", {sparse("optimizer.clip_norm=1"), "Hogwild has neither"}},
      {"sparse_hogwild_interleaved",
       {{"model=logistic",
         "data=sparse",
         "optimizer.rule=sgd",
         "replicas.exchange=hogwild",
         "replicas.count=2",
         "replicas.split=by_label"},
        "deals rows interleaved"}},
      {"sandblaster_in_one_stage", {{kSandblaster, "pipeline.stages=2"}, "is one stage"}},
      {"sandblaster_on_cpu",
       {{kSandblaster, "placement.devices=[cuda:0]"}, "sandblaster runs on cpu only", true}},
      {"sandblaster_without_rate", {{kSandblaster, "replicas.rate_factor=2"}, "leave it at 0"}},
      {"sandblaster_without_optimizer",
       {{kSandblaster, "optimizer.beta2=0.5"}, "optimizer.beta2: L-BFGS"}},
  };
  return all;
}

const Cases& of_blueprints() {
  static const Cases all{
      {"classes_to_deal_by",
       {{"model=quadratic", "data=none", "replicas.count=2", "replicas.split=by_label"},
        "needs samples of one class each"}},
      {"the_best_by_accuracy",
       {{"model=quadratic", "data=none", "stop.monitor=accuracy"},
        "accuracy needs data with classes"}},
      {"copies_without_statistics",
       {{"pipeline.stages=3",
         "pipeline.copies=[2,1]",
         kAsync,
         "pipeline.weights=stash",
         "data.batch_size=48"},
        "batch normalisation keeps running statistics"}},
      {"copies_without_tied_parameters",
       {{"data=text",
         "data.text.path=" + text_file(),
         "data.text.context=8",
         "data.batch_size=4",
         "model=gpt",
         "model.gpt.layers=2",
         "model.gpt.width=8",
         "model.gpt.heads=2",
         "pipeline.stages=3",
         "pipeline.copies=[2,1]",
         kAsync,
         "pipeline.weights=stash"},
        "chunks that share a parameter"}},
      {"statistics_of_the_best",
       {{"replicas.count=2", "record.best=true", "data.batch_size=48"},
        "batch normalisation keeps running statistics"}},
      {"a_batch_of_a_share",
       {{"data.batch_size=300", "replicas.count=2", "replicas.split=by_label"},
        "more than a replica's share"}},
      {"classes_to_be_accurate_in",
       {{"model=quadratic", "data=none", "stop.target_accuracy=0.5", "record.evaluate=true"},
        "data with classes"}},
      {"hogwild_update_for_each_replica",
       {{"replicas.exchange=hogwild", "replicas.count=3", "stop.updates=2"},
        "3 is more than the run's 2 updates"}},
      {"a_layer_for_each_stage", {{"pipeline.stages=9"}, "too few for 9 chunks"}},
      {"a_layer_for_each_chunk",
       {{"pipeline.stages=2", "pipeline.stage_of=[0,1,0,1,0,1,0,1,0]"}, "it has 9 chunks"}},
      {"weights_of_the_schedule",
       {{"pipeline.stages=2", kAsync, "pipeline.micro_batches=2", "pipeline.weights=vertical_sync"},
        "vertical_sync"}},
      {"all_reduce_that_can_be_interrupted",
       {{"pipeline.stages=2",
         kAsync,
         "pipeline.weights=stash",
         "pipeline.stage_of=[0,1,0]",
         "replicas.count=2",
         "replicas.exchange.synchronous.reduction=ring"},
        "ring and tree do not go with"}},
      {"modules_to_decouple", {{"decoupled=local_loss"}, "has no modules"}},
      {"angle_of_untied_modules",
       {{"data=text",
         "data.text.path=" + text_file(),
         "data.text.context=8",
         "data.batch_size=4",
         "model=gpt",
         "model.gpt.layers=2",
         "model.gpt.width=8",
         "model.gpt.heads=2",
         "pipeline.stages=2",
         "record.angle_every=1"},
        "or model.gpt.tied=false"}},
      {"a_tensor_for_each_shard",
       {{"replicas.count=2", "replicas.shards=50"}, "tensors, too few for 50 slices"}},
      {"copies_of_somebody",
       {{"placement.copies=[\"director=2\"]"}, "fits no stage or server of this run"}},
      {"hosts_for_all_machines",
       {{"replicas.count=3", "clock.faults.hosts=4"}, "4 are more than this run has places for"}},
      {"sandblaster_of_all_the_data",
       {{kSandblaster}, "set it to 512 (it is 16)", false, "data.batch_size"}},
      {"sandblaster_portions_with_samples",
       {{kSandblaster, "data.batch_size=512", "replicas.exchange.sandblaster.portions=513"},
        "513 is more than the 512"}},
      {"sandblaster_in_one_chunk",
       {{kSandblaster, "data.batch_size=512", "pipeline.stage_of=[0,0]"}, "make 2 of it"}},
      {"sandblaster_without_batch_norm",
       {{kSandblaster, "data.batch_size=96"},
        "batch norm looks at the whole portion",
        false,
        "model"}},
  };
  return all;
}

}  // namespace

TEST_CASE("each row refuses what it names, and says so", "[checks]") {
  const BoxedExperiment right = task();
  for (const Constraint<proto::Experiment>& row : experiment_checks()) {
    CAPTURE(row.name);
    CHECK(row.complaint(right) == "");
    if (row.name == "lenet5_without_cudnn_on_cpu") {
      continue;  // whether it holds is the build's
    }
    REQUIRE(of_experiments().count(std::string(row.name)) == 1);
    const Refused& refused = of_experiments().at(std::string(row.name));
    const BoxedExperiment wrong = task(refused.set);
    const std::string sentence = row.complaint(wrong);
    CHECK_THAT(sentence, Catch::Contains(refused.says));
    CHECK(begins_with_a_key(sentence));
    CAPTURE(sentence);
    CHECK(begins_with_its_key(refused, sentence));
    if (!refused.row_alone) {
      CHECK(told(wrong) == sentence);
    }
  }
}

TEST_CASE("each row about data, network, schedule or chunks refuses what it names", "[checks]") {
  std::size_t rows = 0;
  for (const Known known :
       {Known::data, Known::length, Known::network, Known::schedule, Known::chunks}) {
    const auto right = make_blueprint(task());
    REQUIRE(right);
    CHECK(check_blueprint(*right, known));
    for (const Constraint<Blueprint>& row : blueprint_checks(known)) {
      CAPTURE(row.name);
      ++rows;
      REQUIRE(of_blueprints().count(std::string(row.name)) == 1);
      const Refused& refused = of_blueprints().at(std::string(row.name));
      const BoxedExperiment wrong = row.name == "sandblaster_without_batch_norm" ||
                                            row.name == "statistics_of_the_best" ||
                                            row.name == "copies_without_statistics"
                                        ? normalised(refused.set)
                                        : task(refused.set);
      CHECK(check_experiment(wrong));
      const std::string sentence = told(wrong);
      CHECK_THAT(sentence, Catch::Contains(refused.says));
      CHECK(begins_with_a_key(sentence));
      CAPTURE(sentence);
      CHECK(begins_with_its_key(refused, sentence));
    }
  }
  CHECK(rows == of_blueprints().size());
}

TEST_CASE("what is wrong with an experiment alone is told before its data is opened", "[checks]") {
  const std::vector<std::string> nowhere{"data=mnist", "data.mnist.path=/nowhere/at/all"};
  const auto lost = make_blueprint(task(nowhere));
  REQUIRE_FALSE(lost);
  REQUIRE(lost.error().kind == ErrorKind::data);
  for (const auto& [name, refused] : of_experiments()) {
    std::vector<std::string> set = refused.set;
    set.insert(set.begin(), nowhere.begin(), nowhere.end());
    const bool has_data = std::any_of(refused.set.begin(), refused.set.end(), [](const auto& key) {
      return key.starts_with("data=") || key.starts_with("data.custom");
    });
    if (!refused.row_alone && !has_data) {
      CAPTURE(name);
      const auto made = make_blueprint(task(set));
      REQUIRE_FALSE(made);
      CHECK(made.error().kind == ErrorKind::usage);
      CHECK_THAT(made.error().message, Catch::Contains(refused.says));
    }
  }
}

TEST_CASE("hosts that faults name are there, one for each second", "[checks]") {
  const auto said = [](const std::vector<std::string>& set) {
    std::vector<std::string> all{"replicas.count=2"};
    for (const std::string& assignment : set) {
      all.push_back("clock.faults." + assignment);
    }
    return told(task(all));
  };
  CHECK(said({"cuts.at=[1,2]", "cuts.host=[0,2]", "cuts.other=[-1,1]"}).empty());
  CHECK_THAT(said({"freezes.at=[1,2]", "freezes.host=[1]"}),
             Catch::StartsWith("clock.faults.freezes.host: one host for each of the 2 seconds"));
  CHECK_THAT(said({"cuts.other=[1]"}), Catch::StartsWith("clock.faults.cuts.other: one host"));
  CHECK_THAT(said({"cuts.at=[1]", "cuts.host=[3]"}), Catch::Contains("3 of 3 hosts"));
  CHECK_THAT(said({"cuts.at=[1]", "cuts.host=[2]", "cuts.other=[2]"}),
             Catch::StartsWith("clock.faults.cuts.other: 2 is the same host"));
  CHECK_THAT(said({"hosts=2", "crashes.at=[1]", "crashes.host=[2]"}),
             Catch::Contains("2 of 2 hosts"));
}

TEST_CASE("faults leave hosts and links time between them", "[checks]") {
  const auto said = [](const std::string& kind, const std::string& every) {
    return told(task({"replicas.count=2",
                      concat("clock.faults.", kind, ".every=", every),
                      concat("clock.faults.", kind, ".seconds=30")}));
  };
  CHECK_THAT(said("freezes", "1.9"),
             Catch::Contains("each for 30, and the run hardly goes on; at least 2 does"));
  CHECK(said("freezes", "2").empty());
  CHECK_THAT(said("cuts", "1.9"), Catch::StartsWith("clock.faults.cuts.every: one every 1.9"));
  CHECK(said("cuts", "2").empty());
}

TEST_CASE("faults are for the virtual clock alone", "[checks]") {
  const BoxedExperiment seeded = task({"clock.faults.seed=3"});  // and nothing goes wrong
  CHECK(check_clock(seeded, false));
  const BoxedExperiment lossy = task({"clock.faults.wire.loss=0.1"});
  CHECK(check_clock(lossy, true));
  REQUIRE_FALSE(check_clock(lossy, false));
  CHECK_THAT(check_clock(lossy, false).error().message, Catch::EndsWith("use troupe sim"));
}

TEST_CASE("the clock's rows, and a later phase's, come before the first one's data", "[checks]") {
  const std::vector<std::string> nowhere{"data=mnist", "data.mnist.path=/nowhere/at/all"};
  const auto said = [](const proto::Experiment& e, bool virtual_clock) {
    const auto made = make_phases(e, virtual_clock);
    REQUIRE_FALSE(made);
    return made.error().message;
  };
  BoxedExperiment held = task(nowhere);
  REQUIRE(set_value(*held, "clock.workers.hold_back=[2]"));
  CHECK_THAT(said(held, true), Catch::StartsWith("clock.workers.hold_back"));
  CHECK_THAT(said(held, false), !Catch::Contains("hold_back"));
  BoxedExperiment two = task(nowhere);
  two->add_phases()->set_name("one");
  two->add_phases()->set_name("two");
  two->mutable_phases(1)->add_set("pipeline.micro_batches=3");
  CHECK_THAT(said(two, false), Catch::StartsWith("phases[1]: pipeline.micro_batches: 3"));
  const BoxedExperiment shared = task({"replicas.exchange=hogwild", "record.order=true"});
  CHECK(check_clock(shared, true));
  REQUIRE_FALSE(check_clock(shared, false));
  CHECK_THAT(check_clock(shared, false).error().message, Catch::StartsWith("record.order: "));
}

}  // namespace checks_test
