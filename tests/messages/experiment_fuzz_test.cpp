// Valid experiments and assignments, damaged at random: whatever comes in, an error is one sentence
// and what is taken prints and reads back the same. TROUPE_SEED=n replays one seed's cases.
#include "experiment.pb.h"
#include "kernels/random.hpp"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/sanitized.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace experiment_fuzz_test {

using namespace troupe;

namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : stream_(seed, Purpose::test) {}

  std::size_t below(std::size_t n) { return stream_.below(index_++, n); }

  template <class T>
  const T& one_of(const std::vector<T>& items) {
    return items[below(items.size())];
  }

 private:
  RandomStream stream_;
  std::uint64_t index_ = 0;
};

std::uint64_t first_seed() {
  const char* seed = std::getenv("TROUPE_SEED");
  return seed ? std::strtoull(seed, nullptr, 10) : 1;
}

const std::vector<std::string>& assignments() {
  static const std::vector<std::string> list{
      "name=a run",
      "name=\"K\303\266ln, \\\"1\\\"\"",
      "seed=18446744073709551615",
      "model=snn",
      "model.mlp.hidden=[64, 32]",
      "model.mlp.activation=gelu",
      "model.quadratic.curvature=1e-3",
      "data=none",
      "data.batch_size=32",
      "data.teacher.values=true",
      "data.mnist.path='/some/where'",
      "optimizer.rule=nadamw",
      "optimizer.learning_rate=0.1",
      "optimizer.schedule.step.factor=.5",
      "pipeline.stages=4",
      "pipeline.schedule=gpipe",
      "pipeline.schedule.interleaved.chunks=4",
      "pipeline.weights=nesterov",
      "pipeline.weights.pipemare.decay=0.25",
      "pipeline.cut=[1,2,3]",
      "pipeline.cut=[]",
      "pipeline.stage_of=[0,1,0]",
      "placement.devices=[cpu,\"cuda:0\"]",
      "clock.forward.seconds=[0.5,1e-9]",
      "clock.link=log_normal",
      "clock.flops=1e15",
      "stop.updates=-1",
      "record.order=false",
  };
  return list;
}

const std::vector<std::string>& tokens() {
  static const std::vector<std::string> list{
      "{",
      "}",
      "[",
      "]",
      "<",
      ">",
      ":",
      ",",
      ";",
      "=",
      ".",
      "\"",
      "'",
      "\\",
      "#",
      "\n",
      "\t",
      " ",
      "-",
      "+",
      "0",
      "1",
      "-0",
      "1.5",
      "1e999",
      "1e-320",
      "4e18",
      "9223372036854775808",
      "0x1F",
      "inf",
      "nan",
      "-inf",
      "NaN",
      "null",
      "true",
      "false",
      "[]",
      "{}",
      "\\u0000",
      "\\ud800",
      "\\377",
      "\xFF",
      "\303\266",
      std::string(1, '\0'),
      "kind",
      "seed",
      "stages: 2",
      "\"seed\": 2,",
      "gpipe {}",
      "\"gpipe\": {}",
      "\"weights\": \"stash\",",
      "model { linear {} }",
      "[a.b]",
      "[a.b/c]",
      "hidden",
  };
  return list;
}

/// One or two places cut out, doubled, filled with a token, a random byte, another digit or a piece of another
/// text.
std::string damaged(std::string text, const std::vector<std::string>& others, Dice& dice) {
  for (std::size_t edits = 1 + dice.below(2); edits > 0; --edits) {
    const std::size_t at = dice.below(text.size() + 1);
    const std::size_t length = dice.below(1 + std::min<std::size_t>(text.size() - at, 12));
    const std::string piece = text.substr(at, length);
    switch (dice.below(7)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(dice.below(text.size() + 1), piece);
        break;
      case 2:
        text.insert(at, dice.one_of(tokens()));
        break;
      case 3:
        text.replace(at, length, dice.one_of(tokens()));
        break;
      case 4:
        text.replace(at, length > 0 ? 1 : 0, 1, static_cast<char>(dice.below(256)));
        break;
      case 5:
        if (const std::size_t digit = text.find_first_of("0123456789", at); digit != text.npos) {
          text[digit] = static_cast<char>('0' + dice.below(10));
        }
        break;
      default: {
        const std::string& other = dice.one_of(others);
        const std::size_t from = dice.below(other.size());
        text.replace(at, length, other, from, dice.below(40));
      }
    }
  }
  return text;
}

bool is_one_sentence(const Error& error) {
  const std::string& message = error.message;
  return error.kind == ErrorKind::usage && !message.empty() && message.size() < 1000 &&
         message.find('\n') == message.npos && message.find('\0') == message.npos;
}

bool same(const proto::Experiment& a, const proto::Experiment& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

/// Resolves, prints and reads back; true where the experiment was legal.
bool round_trip(proto::Experiment experiment) {
  const proto::Experiment unresolved = experiment;
  if (const auto done = resolve(experiment); !done) {
    REQUIRE(is_one_sentence(done.error()));
    return false;
  }
  const std::string text = print_experiment(experiment);
  const std::string json = print_experiment_json(experiment);
  INFO(text << json);
  const auto from_text = parse_experiment(text, "printed");
  REQUIRE(from_text);
  REQUIRE(same(*from_text, experiment));
  const auto from_json = parse_experiment(json, "printed");
  REQUIRE(from_json);
  REQUIRE(same(*from_json, experiment));
  const auto unresolved_again = parse_experiment(print_experiment_json(unresolved), "printed");
  REQUIRE(unresolved_again);
  REQUIRE(same(*unresolved_again, unresolved));
  proto::Experiment twice = experiment;
  REQUIRE(resolve(twice));
  REQUIRE(same(twice, experiment));
  return true;
}

proto::Experiment random_experiment(Dice& dice) {
  proto::Experiment experiment;
  for (std::size_t n = dice.below(8); n > 0; --n) {
    REQUIRE(set_value(experiment, dice.one_of(assignments())));
  }
  if (dice.below(4) == 0) {
    (void)resolve(experiment);
  }
  return experiment;
}

/// Most experiments of eight random values are illegal, and so is what damage makes of them.
proto::Experiment legal_experiment(Dice& dice) {
  for (;;) {
    proto::Experiment experiment = random_experiment(dice);
    if (proto::Experiment resolved = experiment; resolve(resolved)) {
      return experiment;
    }
  }
}

struct Tally {
  int legal = 0;
  int refused = 0;
};

/// Damages printed experiments.
template <class Print>
Tally fuzz_texts(int count, const Print& print) {
  Tally tally;
  const std::uint64_t first = first_seed();
  for (std::uint64_t seed = first; seed < first + 20; ++seed) {
    Dice dice(seed);
    std::vector<std::string> texts;
    for (int i = 0; i < 20; ++i) {
      texts.push_back(print(i % 4 == 0 ? random_experiment(dice) : legal_experiment(dice)));
    }
    for (int i = 0; i < count / 20; ++i) {
      const std::string text = damaged(dice.one_of(texts), texts, dice);
      INFO("seed " << seed << ", case " << i << ":\n" << text);
      const auto experiment = parse_experiment(text, "fuzz");
      if (!experiment) {
        REQUIRE(is_one_sentence(experiment.error()));
      }
      ++(experiment && round_trip(*experiment) ? tally.legal : tally.refused);
    }
  }
  return tally;
}

constexpr int kTexts = test::kSanitized ? 1200 : 6000;

}  // namespace

TEST_CASE("damaged textprotos are refused in a sentence or read back the same", "[messages]") {
  const Tally tally = fuzz_texts(kTexts, print_experiment);
  CHECK(tally.legal > kTexts / 20);
  CHECK(tally.refused > kTexts / 4);
}

TEST_CASE("damaged JSON is refused in a sentence or reads back the same", "[messages]") {
  const Tally tally = fuzz_texts(kTexts, print_experiment_json);
  CHECK(tally.legal > kTexts / 40);
  CHECK(tally.refused > kTexts / 4);
}

TEST_CASE("damaged assignments are refused in a sentence or read back the same", "[messages]") {
  Tally tally;
  const std::uint64_t first = first_seed();
  for (std::uint64_t seed = first; seed < first + 20; ++seed) {
    Dice dice(seed);
    proto::Experiment experiment;
    for (int i = 0; i < 1000; ++i) {
      const std::string assignment = damaged(dice.one_of(assignments()), assignments(), dice);
      INFO("seed " << seed << ", case " << i << ":\n" << assignment);
      const proto::Experiment before = experiment;
      if (const auto done = set_value(experiment, assignment); !done) {
        REQUIRE(is_one_sentence(done.error()));
        REQUIRE(same(experiment, before));
        ++tally.refused;
      } else if (++tally.legal; !round_trip(experiment)) {
        experiment = before;  // out of bounds: it would hide all that follows
      }
    }
  }
  CHECK(tally.legal > 400);
  CHECK(tally.refused > 4000);
}

}  // namespace experiment_fuzz_test
