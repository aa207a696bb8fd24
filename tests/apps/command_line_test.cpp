// The command line as a user meets it: what is wrong is told in one sentence, by name, with an exit
// code of its kind.
#include "apps/cli/command_line.hpp"

#include "apps/presets/presets.hpp"
#include "experiment.pb.h"
#include "kernels/device.hpp"
#include "messages/experiment.hpp"
#include "messages/other_names.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace command_line_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// One line on stderr that begins with our name, nothing on stdout.
void check_refused(const std::vector<std::string>& arguments,
                   int code,
                   const std::string& sentence) {
  INFO("troupe " << arguments.front());
  const Said said = run_program(arguments);
  CHECK(said.code == code);
  CHECK(said.out.empty());
  CHECK(said.err.starts_with("troupe: "));
  CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
  CHECK_THAT(said.err, says(sentence));
}

}  // namespace

TEST_CASE("unknown verbs, options, presets and names are met with the nearest one", "[apps]") {
  check_refused(
      {"rnu"},
      2,
      "there is no verb \"rnu\", did you mean \"run\"? (verbs: help, run, sim, replay, compare, "
      "board, plan, runs, plot, trace, watch, top, report, config, data, eval, predict, sample, "
      "sharpness, ckpt, explain, conformance, node, keys, doctor, completion, bench)");
  check_refused({"xyzzyx"}, 2, "there is no verb \"xyzzyx\" (verbs: ");
  check_refused({"train"}, 2, "there is no verb \"train\", did you mean \"run\"?");
  check_refused({"run", "lenet5"}, 2, "no file \"lenet5\", did you mean \"mnist-lenet5\"?");
  check_refused(
      {"run", "shakespeare"},
      2,
      "did you mean \"shakespeare-gpt\" or \"shakespeare-lstm\" or \"shakespeare-llama\"?");
  check_refused({"run", "--batch-size", "3"},
                2,
                "run: there is no option \"--batch-size\", did you mean \"--set "
                "data.batch_size=VALUE\"?");
  check_refused({"doctor", "--batch-size"}, 2, "no option \"--batch-size\" (options: --help");
  check_refused({"run", "--lr", "0,1"}, 2, "--lr: \"0,1\" is no number that it takes");
  check_refused({"help", "batch_size"}, 2, "did you mean \"data.batch_size\"?");
  check_refused({"--sett"}, 2, "there is no option \"--sett\"");
  check_refused(
      {"--nope", "run", "x"},
      2,
      "troupe: there is no option \"--nope\" (options: --help, --version; those of a verb "
      "stand behind it)\n");
  check_refused({"--quiet", "run"}, 2, "there is no option \"--quiet\"");
  check_refused(
      {"run", "--sett", "a=b"}, 2, "run: there is no option \"--sett\", did you mean \"--set\"?");
  check_refused(
      {"sim", "--quite"}, 2, "sim: there is no option \"--quite\", did you mean \"--quiet\"?");
  check_refused({"run", "quadratic", "now"}, 2, "run: \"now\" is one word too many");
  check_refused(
      {"plan",
       "glyphs-mlp",
       "--set",
       "replicas.count=2",
       "--set",
       "clock.workers.slowness=[1,2,3]"},
      2,
      "clock.workers.slowness: one number for all replicas, or one for each of the 2; there "
      "are 3");
  check_refused({"run", "glyps-mlp"},
                2,
                "there is no preset and no file \"glyps-mlp\", did you mean \"glyphs-mlp\"? "
                "(`troupe run --list` shows the presets)");
  check_refused({"run", "/nonexistent/x.json"},
                2,
                "the experiment /nonexistent/x.json cannot be read: No such file or directory");
  check_refused({"plan", "/"}, 2, "/ is a folder without an experiment.textproto");
  check_refused(
      {"explain", "spectrian"}, 2, "nothing is called \"spectrian\", did you mean \"spectrain\"?");
  check_refused({"config", "pritn"},
                2,
                "config: \"pritn\" is neither print nor validate, did you mean print?");
  check_refused({"config"}, 2, "config: say print or validate");
  check_refused({"run", "--set"}, 2, "troupe: --set: has no value behind it\n");
  check_refused({"run", "--out", "a", "--out", "b"}, 2, "troupe: --out: may be given once only\n");
  check_refused({"run", "--out", ""}, 2, "--out: the name of the folder is empty");
  check_refused({"config", "validate", "/dev/full"}, 2, "/dev/full is larger than 1 MiB");
}

TEST_CASE("an empty word is no experiment, folder or number, whatever the default", "[apps]") {
  constexpr const char* kEmpty = ": this is an empty word; leave it out, or name one\n";
  for (const char* verb : {"run", "sim", "plan", "compare"}) {
    check_refused({verb, ""}, 2, concat("troupe: EXPERIMENT", kEmpty));
  }
  check_refused({"config", "validate", ""}, 2, concat("troupe: EXPERIMENT", kEmpty));
  check_refused({"compare", "teacher-mlp", ""}, 2, concat("troupe: EXPERIMENT", kEmpty));
  for (const char* verb : {"report", "plot", "top", "watch", "trace"}) {
    check_refused({verb, ""}, 2, "troupe: DIR");
  }
  check_refused({"eval", ""}, 2, concat("troupe: WEIGHTS", kEmpty));
  for (const char* number : {"--seed", "--epochs", "--lr", "--processes"}) {
    check_refused({"run", "teacher-mlp", number, ""}, 2, concat("troupe: ", number, kEmpty));
  }
}

TEST_CASE("a number of an option is in its range, and a number", "[apps]") {
  const std::string epsilon = "troupe: --epsilon: ";
  check_refused(
      {"sharpness", "w", "--epsilon", "2"}, 2, epsilon + "2 is no number from 1e-09 to 1\n");
  check_refused(
      {"sharpness", "w", "--epsilon", "0"}, 2, epsilon + "0 is no number from 1e-09 to 1\n");
  check_refused({"sharpness", "w", "--epsilon", "nan"}, 2, epsilon + "nan is no number from");
  for (const char* target : {"-1", "nan", "inf", "high"}) {
    check_refused({"compare", "--target", target},
                  2,
                  concat("troupe: --target: ", target, " is no number from 0 up\n"));
  }
  check_refused({"compare", "--seeds", "0"}, 2, "--seeds: 0 is no whole number from 1 to 1000\n");
  check_refused({"compare", "--seeds", "1.5"}, 2, "--seeds: 1.5 is no whole number from 1 to 1000");
  check_refused({"compare", "--jobs", "1025"}, 2, "--jobs: 1025 is no whole number from 1 to 1024");
  check_refused({"sample", "d", "--temperature", "nan"}, 2, "nan is no number from 0 to 100\n");
  check_refused({"sample", "d", "--tokens", "0"}, 2, "0 is no whole number from 1 to 10000000\n");
}

TEST_CASE("no verb at all shows the help and is an error", "[apps]") {
  const Said said = run_program({});
  CHECK(said.code == 2);
  CHECK(said.out.empty());
  CHECK_THAT(said.err, says("Subcommands:"));
  CHECK_THAT(said.err, says("troupe: say what to do"));
}

TEST_CASE("a misspelt key is met with the nearest one", "[apps]") {
  check_refused({"run", "--set", "pipeline.stges=3"},
                2,
                "pipeline.stges: pipeline has no key \"stges\", did you mean \"stages\"?");
  check_refused({"run", "--set", "pipeline.weights=spectran"}, 2, "did you mean \"spectrain\"?");
  check_refused({"run", "--set", "optimizer.momentum=2"}, 2, "optimizer.momentum");
  const Folder folder;
  const std::string path = folder / "mine.textproto";
  std::ofstream(path) << "name: \"mine\"\npipeline { stagse: 2 }\n";
  check_refused({"run", path}, 2, path + ":2");
  check_refused({"run", path}, 2, "did you mean \"stages\"?");
}

TEST_CASE("combinations that make no sense are refused with the reason", "[apps]") {
  check_refused({"run", "--set", "pipeline.stages=9"},
                2,
                "the network has 3 layers, too few for 9 chunks; set pipeline.stages to at most 3");
  check_refused({"run", "--set", "pipeline.micro_batches=3"},
                2,
                "pipeline.micro_batches: 3 does not divide data.batch_size 128");
  check_refused({"run", "--set", "pipeline.weights=double_buffered"},
                2,
                "double_buffered needs pipeline.micro_batches >= pipeline.stages (2)");
  check_refused(
      {"run", "--set", "pipeline.schedule=interleaved", "--set", "model.mlp.hidden=[8,8,8]"},
      2,
      "(1) must be a multiple of pipeline.stages (2)");
  check_refused({"run", "--set", "pipeline.stages=1024"}, 2, "too few for 1024 chunks");
  check_refused({"run", "--set", "pipeline.stages=1", "--set", "pipeline.cut=[1]"},
                2,
                "pipeline.cut: one chunk needs no cut");
  check_refused({"run", "--set", "optimizer.rule=sgd", "--set", "pipeline.weights=nesterov"},
                2,
                "goes with optimizer.rule nadam, nadamw; it is sgd");
  check_refused({"run", "--set", "stop.epochs=0"}, 2, "the run would never end");
  check_refused({"sim",
                 "-q",
                 "--set",
                 "stop.epochs=0",
                 "--set",
                 "stop.seconds=1",
                 "--set",
                 "clock.forward.seconds=0",
                 "--set",
                 "clock.input_gradient.seconds=0",
                 "--set",
                 "clock.weight_gradient.seconds=0"},
                2,
                "the run would never end, as all modelled times (clock) are 0");
  check_refused({"run", "--set", "data=none"}, 2, "data: none has nothing to learn");
  check_refused({"run", "--set", "placement.devices=[cpu,cpu,cpu]"},
                2,
                "one device for all stages, or one for each of the 2");
  check_refused({"run", "--set", "placement.precision=tf32"},
                2,
                "placement.precision: tf32 is a format of GPUs; on cpu use fp32");
  if (!check_precision(Device{}, Precision::bf16)) {
    check_refused({"run", "--set", "placement.precision=bf16"},
                  2,
                  "placement.precision: bf16 on cpu needs AVX512_BF16 or AMX, which this CPU");
  }
}

TEST_CASE(
    "missing data is an error of its own: where it was looked for, what belongs there, the key to "
    "set",
    "[apps]") {
  for (const char* what : {"/nonexistent", "a-folder-without-files"}) {
    const Folder folder;
    std::filesystem::create_directory(folder / "a-folder-without-files");
    const std::string path = what[0] == '/' ? what : folder / what;
    const Said said = run_program({"run", "mnist-mlp", "--set", "data.mnist.path=" + path});
    CHECK(said.code == 3);
    CHECK(said.out.empty());
    for (const char* part : {"train-images-idx3-ubyte",
                             "train-labels-idx1-ubyte",
                             "t10k-images-idx3-ubyte",
                             "t10k-labels-idx1-ubyte",
                             "--set data.mnist.path="}) {
      CHECK_THAT(said.err, says(part));
    }
    CHECK_THAT(said.err, says(path));
  }
}

TEST_CASE("results go to stdout and progress to stderr", "[apps]") {
  const Said said = run_program({"sim", "quadratic", "--set", "stop.updates=100"});
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says("100 updates"));
  CHECK_THAT(said.out, says("virtual clock"));
  CHECK_THAT(said.out, says("shard-0 2.94/3"));
  CHECK_THAT(said.err, says("step   1/100"));
  CHECK_THAT(said.err, says("step 100/100"));
  CHECK(said.err.find('\r') == std::string::npos);  // not a terminal
  const Said quiet = run_program({"sim", "quadratic", "--quiet", "--set", "stop.updates=100"});
  CHECK(quiet.code == 0);
  CHECK(quiet.err.empty());
  CHECK(quiet.out == said.out);
}

TEST_CASE("of many losses the end of a run names some, and how many more there were", "[apps]") {
  Words words{"sim", "teacher-mlp", "--quiet"};
  for (const char* setting : {"pipeline.stages=1",
                              "replicas.count=3",
                              "clock.faults.detection=1e-5",
                              "clock.faults.crashes.every=5e-4",
                              "clock.faults.crashes.back=1e-5",
                              "stop.epochs=0",
                              "stop.updates=200"}) {
    words.insert(words.end(), {"--set", setting});
  }
  const Said said = run_program(words);
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says("\nlost       and 6 more, which summary.json names\n"));
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = said.out.find("; the others went on\n", at)) != std::string::npos;
       ++at) {
    ++rows;
  }
  CHECK(rows == 8);
}

TEST_CASE("--set does not swallow the word behind it, and the last one wins", "[apps]") {
  const Said said = run_program({"config",
                                 "print",
                                 "--set",
                                 "seed=5",
                                 "quadratic",
                                 "--set",
                                 "model.quadratic.layers=7",
                                 "--set",
                                 "seed=6"});
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says("seed: 6"));
  CHECK_THAT(said.out, says("layers: 7"));
  CHECK_THAT(said.out, says("name: \"quadratic\""));
  const Said lists = run_program({"config", "print", "--set=model.mlp.hidden=[8,9,10]"});
  CHECK_THAT(lists.out, says("hidden: [8, 9, 10]"));
}

TEST_CASE("what config prints is the same experiment again, as textproto and as JSON", "[apps]") {
  const Folder folder;
  for (const char* ending : {".textproto", ".json"}) {
    const std::string path = folder / (std::string("printed") + ending);
    const bool json = std::string(ending) == ".json";
    const Said printed =
        run_program(json ? std::vector<std::string>{"config", "print", "snn", "--json"}
                         : std::vector<std::string>{"config", "print", "snn"});
    REQUIRE(printed.code == 0);
    std::ofstream(path) << printed.out;
    const Said again = run_program({"config", "print", path});
    CHECK(again.code == 0);
    CHECK(again.out == run_program({"config", "print", "snn"}).out);
  }
}

TEST_CASE("config validate says whether an experiment can be run", "[apps]") {
  CHECK(run_program({"config", "validate", "quadratic"}).out == "ok: quadratic can be run\n");
  const Said wrong = run_program({"config", "validate", "--json", "--set", "pipeline.stages=9"});
  CHECK(wrong.code == 2);
  CHECK(wrong.out.starts_with("{\"valid\":false,\"error\":\"pipeline.stages: "));
  CHECK(run_program({"config", "validate", "--json", "quadratic"}).out == "{\"valid\":true}\n");
  // What `run` refuses cannot be run.
  for (const std::vector<std::string>& set :
       {std::vector<std::string>{"hogwild-sparse", "--set", "optimizer.rule=adam"},
        {"sandblaster", "--set", "data.batch_size=100"},
        {"quadratic",
         "--set",
         "replicas.exchange=hogwild",
         "--set",
         "stop.updates=1",
         "--set",
         "replicas.count=2",
         "--set",
         "record.order=false"},
        {"quadratic", "--set", "clock.workers.hold_back=[2]", "--set", "clock.modelled=true"}}) {
    std::vector<std::string> arguments{"config", "validate"};
    arguments.insert(arguments.end(), set.begin(), set.end());
    const Said refused = run_program(arguments);
    INFO(set.front() << ": " << refused.out);
    CHECK(refused.code == 2);
    arguments = {"run", "--quiet"};
    arguments.insert(arguments.end(), set.begin(), set.end());
    CHECK(run_program(arguments).err == refused.err);
  }
  const std::vector<std::string> held{"quadratic", "--set", "clock.workers.hold_back=[2]"};
  CHECK_THAT(run_program({"config", "validate", held[0], held[1], held[2]}).out,
             says("ok: quadratic can be run by troupe run only; clock.workers.hold_back: "));
  CHECK_THAT(run_program({"config", "validate", "--json", held[0], held[1], held[2]}).out,
             says("{\"valid\":true,\"limit\":\"by troupe run only; clock.workers.hold_back: "));
  check_refused({"sim", "--quiet", held[0], held[1], held[2]}, 2, "clock.workers.hold_back: ");
  check_refused({"plan", "hogwild-sparse", "--set", "optimizer.rule=adam"}, 2, "optimizer.rule: ");
  check_refused({"plan",
                 "mnist-mlp",
                 "--set",
                 "replicas.count=2",
                 "--set",
                 "clock.workers.straggler.permanent.replica=7"},
                2,
                "clock.workers.straggler.permanent.replica: 7 of replicas.count 2");
}

TEST_CASE("every preset is valid, and plan works on each that needs no files", "[apps]") {
  REQUIRE(presets().front().name == kDefaultPreset);
  for (const Preset& preset : presets()) {
    INFO(preset.name);
    CHECK(preset.summary().size() > 20);
    CHECK(preset.summary().ends_with("."));
    const auto experiment = load_experiment(std::string(preset.name), {});
    REQUIRE(experiment);
    CHECK(experiment->name() == preset.name);
    const proto::Data& data = experiment->data();
    const bool built_in = data.has_glyphs() || data.has_teacher() || data.has_none();
    const Said said = run_program({"plan", std::string(preset.name)});
    if (built_in) {
      CHECK(said.code == 0);
      for (const char* part : {"stages", "memory", "bubble", "staleness", "clipping", "timeline"}) {
        CHECK_THAT(said.out, says(part));
      }
    }
  }
  std::size_t listed = 0;  // a summary may go on in lines that begin with blanks
  std::istringstream lines(run_program({"run", "--list"}).out);
  for (std::string line; std::getline(lines, line);) {
    listed += line.starts_with(' ') ? 0 : 1;
  }
  CHECK(listed == presets().size());
}

TEST_CASE("the help of each verb is a screen, and all of it is behind help VERB", "[apps]") {
  const std::string verbs = run_program({"help"}).out;
  CHECK(verbs == run_program({"--help"}).out);
  for (const char* verb :
       {"run", "sim", "compare", "plan", "config", "ckpt", "data", "predict", "keys"}) {
    INFO(verb);
    const Said said = run_program({verb, "--help"});
    CHECK(said.code == 0);
    CHECK(said.err.empty());
    CHECK(std::count(said.out.begin(), said.out.end(), '\n') <= 24);
    std::istringstream lines(said.out);
    for (std::string line; std::getline(lines, line);) {
      CHECK(line.size() <= 80);
    }
    const Said whole = run_program({"help", verb});
    CHECK(whole.code == 0);
    CHECK(whole.out.size() + 100 >= said.out.size());
  }
  CHECK_THAT(run_program({"help", "run"}).out, says("0: never"));
  CHECK_THAT(run_program({"help", "optimizer.rule"}).out, says("adamw"));
  CHECK_THAT(run_program({"help", "staleness"}).out, says("versions"));
  check_refused({"help", "spectrian"}, 2, "did you mean \"spectrain\"?");
}

TEST_CASE("--help-keys finds keys by a word of theirs; lists have lines of at most 100", "[apps]") {
  const Said said = run_program({"plan", "--help-keys", "weight_decay"});
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says("optimizer.weight_decay=0"));
  CHECK_THAT(said.out, says("optimizer.decay_on=all"));
  CHECK_THAT(said.out, !says("pipeline.stages="));
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"run", "--help-keys", "rate"},
        {"run", "--help-keys", "resnet"},
        {"run", "--help-keys", "codec"},
        {"run", "--list"},
        {"explain"}}) {
    std::istringstream lines(run_program(verb).out);
    for (std::string line; std::getline(lines, line);) {
      CHECK(line.size() <= 100);
    }
  }
  CHECK_THAT(run_program({"run", "--help-keys", "ResNet"}).out, says("model=resnet "));
  check_refused({"run", "--help-keys", "xyzzy"}, 2, "no key has to do with \"xyzzy\"");
}

TEST_CASE("papers' names are taken for ours, and it is said", "[apps]") {
  const Said printed = run_program({"config",
                                    "print",
                                    "--set",
                                    "pipeline.weights=PipeDream",
                                    "--set",
                                    "lr=0.02",
                                    "--set",
                                    "model=resnet18"});
  REQUIRE(printed.code == 0);
  CHECK_THAT(printed.out,
             says("# pipeline.weights=PipeDream is taken for pipeline.weights=stash\n"));
  CHECK_THAT(printed.out, says("learning_rate: 0.02\n"));
  CHECK_THAT(printed.out, says("depth: 18\n"));
  const Said run = run_program(
      {"sim", "quadratic", "--out", "none", "--set", "lr=0.01", "--set", "stop.updates=2"});
  CHECK_THAT(run.err, says("lr=0.01 is taken for optimizer.learning_rate=0.01\n"));
  const std::string taken = "pipeline.schedule=1f1b is taken for pipeline.schedule=one_f_one_b\n";
  CHECK_THAT(run_program({"plan", "--set", "pipeline.schedule=1f1b"}).err, says(taken));
  CHECK_THAT(run_program({"compare",
                          "quadratic",
                          "--set",
                          "pipeline.schedule=1f1b",
                          "--set",
                          "stop.updates=2",
                          "--out",
                          Folder() / "c"})
                 .err,
             says(taken));
  CHECK_THAT(run_program({"help", "1f1b"}).out, says("one_f_one_b (pipeline.schedule)"));
  const Folder folder;
  std::ofstream(folder / "a.textproto") << "pipeline { weights { pipedream {} } }\n";
  check_refused({"plan", folder / "a.textproto"}, 2, "did you mean \"stash\"?");
  std::ofstream(folder / "b.textproto") << "optimizer { lr: 0.1 }\n";
  check_refused({"plan", folder / "b.textproto"}, 2, "did you mean \"learning_rate\"?");
}

TEST_CASE("every other name stands for something legal, and for nothing by itself", "[apps]") {
  for (const OtherName& other : other_names()) {
    INFO(other.key << " " << other.name);
    proto::Experiment e;
    const std::string assignment =
        other.key.empty() ? concat(other.name, "=0.5") : concat(other.key, "=", other.name);
    if (other.name != "start_from.skip") {
      CHECK(set_value(e, assignment));
    }
    for (const std::string& meant : meant_by(assignment)) {
      CHECK(meant_by(meant).empty());
    }
  }
}

TEST_CASE("an experiment's file names its data beside itself", "[apps]") {
  const Folder folder;
  std::filesystem::create_directory(folder / "there");
  std::ofstream(folder / "there/mine.textproto")
      << "data { csv { path: 'mine.csv' } } model { linear {} }\n";
  std::ofstream(folder / "there/mine.csv") << "x,y\n1,a\n2,b\n3,a\n4,b\n";
  const Said said = run_program({"config", "print", folder / "there/mine.textproto"});
  CHECK_THAT(said.out, says("path: \"" + folder / "there/mine.csv" + "\""));
  const Said set = run_program(
      {"config", "print", folder / "there/mine.textproto", "--set", "data.csv.path=mine.csv"});
  CHECK_THAT(set.out, says("path: \"mine.csv\""));
  std::filesystem::copy_file(folder / "there/mine.textproto",
                             folder / "there/experiment.textproto");
  const Said written = run_program({"config", "print", folder / "there/experiment.textproto"});
  CHECK_THAT(written.out, says("path: \"mine.csv\""));
}

TEST_CASE("help of the program lists its verbs and exit codes", "[apps]") {
  const Said said = run_program({"--help"});
  CHECK(said.code == 0);
  for (const char* part : {"run",
                           "sim",
                           "plan",
                           "plot",
                           "config",
                           "data",
                           "sample",
                           "sharpness",
                           "ckpt",
                           "explain",
                           "doctor",
                           "bench",
                           "130 interrupted"}) {
    CHECK_THAT(said.out, says(part));
  }
  CHECK(run_program({"--version"}).out.starts_with("troupe 0."));
}

TEST_CASE("explain knows every name that an experiment can choose", "[apps]") {
  const Said all = run_program({"explain"});
  CHECK(all.code == 0);
  for (const char* name : {"gpipe",
                           "zb_h1",
                           "async_full_duplex",
                           "stash",
                           "nwpt",
                           "bmuf",
                           "dana_slim",
                           "recompute",
                           "nadamw"}) {
    CHECK_THAT(all.out, says(std::string("  ") + name));
    const Said one = run_program({"explain", name});
    CHECK(one.code == 0);
    CHECK(one.out.starts_with(std::string(name) + " ("));
  }
  const Said eamsgd = run_program({"explain", "eamsgd"});  // a paper's name for two keys
  CHECK(eamsgd.code == 0);
  CHECK_THAT(eamsgd.out, says("eamsgd: easgd with momentum"));
  CHECK_THAT(eamsgd.out, says("easgd (replicas.exchange)"));
  const Said delayed = run_program({"explain", "ddg"});
  CHECK(delayed.code == 0);
  CHECK_THAT(delayed.out, says("pipeline.schedule=async_one_f_one_b with pipeline.weights=stash"));
  CHECK_THAT(delayed.out, says("stash (pipeline.weights)"));
  const Said replayed = run_program({"explain", "features_replay"});
  CHECK_THAT(replayed.out, says("recompute (pipeline.activations)"));
  // A name with two meanings shows both.
  const Said nesterov = run_program({"explain", "nesterov"});
  CHECK_THAT(nesterov.out, says("nesterov (pipeline.weights)"));
  CHECK_THAT(nesterov.out, says("nesterov (optimizer.rule)"));
}

TEST_CASE("doctor says what is there and what is not", "[apps]") {
  const Said said = run_program({"doctor"});
  CHECK(said.code == 0);
  for (const char* part : {"cpu",
                           "features",
                           "avx2",
                           "kernels    x86-64-v",
                           "cores",
                           "caches     L1 ",
                           "tiles      products ",
                           "memory",
                           "gpu",
                           "precision  cpu fp32",
                           "oneDNN",
                           "CAF        0.17",
                           "protobuf",
                           "will use"}) {
    CHECK_THAT(said.out, says(part));
  }
}

TEST_CASE("explain knows keys, presets and terms, too", "[apps]") {
  const auto explained = [](const std::string& word) {
    const Said said = run_program({"explain", word});
    CHECK(said.code == 0);
    return said.out;
  };
  CHECK(explained("lag").starts_with("staleness (lag)\n  versions between"));
  const std::string lag = explained("lag");  // and nothing that only stands in a sentence
  CHECK(std::count(lag.begin(), lag.end(), '\n') == 2);
  CHECK_THAT(explained("data.batch_size"), says("data.batch_size=128") && says("samples in a"));
  CHECK(explained("data.batch_size").find("growth") == std::string::npos);
  CHECK_THAT(
      explained("pipeline.weights"),
      says("pipeline.weights=latest") && says("\n  stash ") && says("pipeline.weights.pipemare"));
  CHECK_THAT(explained("record.checkpoint"), says("record.checkpoint.every=0"));
  CHECK_THAT(explained("mnist-lenet5"), says("(a preset)") && says("lenet5"));
  // A scheme and a term.
  CHECK_THAT(explained("delay"), says("updates of a chunk between"));
  CHECK_THAT(
      explained("lost_copy"),
      says(
          "lost_copy (a line of metrics.jsonl)\n  a copy of a stage or server is lost\n    of\n") &&
          says("    left: copies that are left\n    cause\n    seconds\n"));
  for (const char* kind : {"header", "train", "evaluation", "replica", "returned", "restart"}) {
    CHECK_THAT(explained("metrics.jsonl"), says(std::string("\n") + kind + " (a line of"));
  }
  const Said near = run_program({"explain", "stalenes"});
  CHECK(near.code == 2);
  CHECK_THAT(near.err, says("did you mean \"staleness\"?"));
  CHECK(run_program({"explain", "data.batch_sise"}).code == 2);
}

TEST_CASE("short forms set their keys, and are the last", "[apps]") {
  const Words print{"config", "print", "glyphs-mlp"};
  const Said said = run_program(
      with(print, {"--seed", "7", "--lr", "0.0125", "--epochs", "2.5", "--set", "seed=3"}));
  REQUIRE(said.code == 0);
  for (const char* line : {"\nseed: 7\n", "learning_rate: 0.0125\n", "epochs: 2.5\n"}) {
    CHECK_THAT(said.out, says(line));
  }
  CHECK_THAT(run_program(with(print, {"--lr", "-1"})).err, says("optimizer.learning_rate: -1"));
  CHECK_THAT(run_program(with(print, {"--epochs", "few"})).err, says("--epochs"));
  CHECK_THAT(run_program(with(print, {"--lr", "nan"})).err, says("\"nan\" is not a finite number"));
  CHECK(run_program({"plan", "glyphs-mlp", "--lr", "-1"}).code == 2);
  const Said resumed = run_program({"run", "--resume", "nowhere", "--lr", "0.1"});
  CHECK(resumed.code == 3);
  CHECK_THAT(resumed.err, says("no checkpoint to go on from"));
}

TEST_CASE("what is named as an experiment or a run and is something else is told", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "t.csv") << "a,y\n1,p\n2,q\n";
  std::filesystem::create_directories(folder / "photos/cat");
  check_refused(
      {"run", folder / "t.csv"},
      2,
      "is no experiment; as data of your own it is --set data.csv.path=" + (folder / "t.csv"));
  check_refused({"run", folder / "photos"},
                2,
                "as data of your own it is --set data.folder.path=" + (folder / "photos"));
  const std::string run = folder / "run";
  REQUIRE(run_program({"sim", "quadratic", "--out", run, "--set", "stop.updates=3"}).code == 0);
  check_refused({"sim", "--resume", folder / "photos"},
                3,
                "there is none in it, and it is no folder of a run");
  const std::string trained_on = "troupe sim " + run + " --set start_from=" + run;
  check_refused(
      {"sim", "--resume", run}, 3, "what it has trained can be trained on: " + trained_on);
  std::filesystem::remove(run + "/weights.safetensors");
  check_refused(
      {"sim", "--resume", run}, 3, "record.checkpoint.seconds, so begin anew: troupe sim " + run);
}

TEST_CASE("the plan has the learning rate and counts the epochs of all replicas", "[apps]") {
  const Said one = run_program({"plan", "glyphs-mlp", "--epochs", "1"});
  CHECK_THAT(one.out, says("updates (1 epoch);") && says("learning rate 0.05\n"));
  const Said two = run_program(
      {"plan", "glyphs-mlp", "--set", "replicas.count=2", "--set", "replicas.exchange=averaging"});
  CHECK_THAT(two.out, says("702 updates (3 epochs)"));
}

TEST_CASE("a standard output that is full is an error, one that is closed is not", "[apps]") {
  const Said full = Program({"explain"}, "/dev/full").wait();
  CHECK(full.code == 5);
  CHECK(full.err == "troupe: standard output could not be written: No space left on device\n");
  const Said closed =
      Program({"-c", "exec '" + program_path() + "' explain >&-"}, "", "/bin/sh").wait();
  CHECK(closed.code == 0);
  CHECK(closed.err.empty());
  const Said piped =
      Program({"-c", "'" + program_path() + "' run --help 2>&1 | head -c 10"}, "", "/bin/sh")
          .wait();
  CHECK(piped.code == 0);
  CHECK(piped.err.empty());
}

}  // namespace command_line_test
