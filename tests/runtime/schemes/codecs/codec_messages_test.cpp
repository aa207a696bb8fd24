// What codecs make of odd numbers, and of messages that are none.
#include "tests/runtime/schemes/codecs/codec_fixture.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace codec_messages_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<std::string> kAll = {"up=fp16",
                                       "up=bf16",
                                       "up=int8_block",
                                       "up.int8_block.rounding=stochastic",
                                       "up=int4_block",
                                       "up=e3m0",
                                       "up.e3m0.rounding=stochastic",
                                       "up=one_bit",
                                       "up=strom",
                                       "up.strom.coding=golomb up.strom.density=0.1",
                                       "up.top_k.density=0.1",
                                       "up.top_k.density=0.1 up.top_k.coding=golomb",
                                       "up.random_k.density=0.1",
                                       "up=qsgd",
                                       "up.qsgd.coding=fixed",
                                       "up.qsgd.coding=recursive",
                                       "up.qsgd.levels=1 up.qsgd.coding=recursive",
                                       "up=terngrad",
                                       "up.dgc.density=0.05",
                                       "up.dgc.density=0.05 up.dgc.nesterov=true",
                                       "up.powersgd.rank=2",
                                       "up=sign_vote",
                                       "up=sign_vote feedback=on"};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

std::vector<std::uint32_t> mutated(std::vector<std::uint32_t> words,
                                   const RandomStream& random,
                                   std::uint64_t at) {
  const auto pick = [&](std::uint64_t n) {
    return random.below(at++, n);
  };
  const std::uint64_t changes = 1 + pick(3);
  for (std::uint64_t i = 0; i < changes && !words.empty(); ++i) {
    std::uint32_t& word = words[pick(words.size())];
    switch (pick(6)) {
      case 0:
        word ^= 1u << pick(32);
        break;
      case 1:
        word = static_cast<std::uint32_t>(random.bits(at++));
        break;
      case 2:
        word = pick(2) == 0 ? 0u : 0xffffffffu;
        break;
      case 3:
        words.resize(pick(words.size()));
        break;
      case 4:
        words.push_back(static_cast<std::uint32_t>(random.bits(at++)));
        break;
      default:
        words.front() = static_cast<std::uint32_t>(pick(600));
    }
  }
  return words;
}

}  // namespace

TEST_CASE("numbers that are not finite arrive as what they are: none", "[codecs]") {
  const std::string choice = GENERATE(from_range(kAll));
  const float odd = GENERATE(as<float>(), kInf, -kInf, kNan);
  INFO(choice << " of " << odd);
  Ends ends(choice);
  Numbers x = normal(kSlice, 1);
  ends.sent(x);
  const Numbers before = ends.left();
  x[100] = odd;
  const Tensor message = ends.message(x);
  CHECK(message.elements() == 1);
  for (const float v : ends.read(message)) {
    CHECK(std::isnan(v));
  }
  CHECK(ends.left() == before);
}

TEST_CASE("the greatest, the least and the same numbers", "[codecs]") {
  const std::string choice = GENERATE(from_range(kAll));
  INFO(choice);
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{33}, kSlice}) {
    for (const float value : {0.0f, -0.0f, 1.0f, -2.5f, kMost, -kMost, kTiny}) {
      INFO(value << " times " << n);
      Ends ends(choice, n);
      const Numbers x(static_cast<std::size_t>(n), value);
      for (int message = 0; message < 3; ++message) {
        const Numbers got = ends.sent(x);
        CHECK(static_cast<std::int64_t>(got.size()) == n);
        if (value == 0 && choice != "up=sign_vote") {
          CHECK(got == Numbers(x.size()));
        } else if (std::abs(value) < 3 && value != kTiny) {
          for (const float v : got) {
            CHECK(std::isfinite(v));
          }
        }
      }
    }
  }
}

TEST_CASE("constant numbers are not cut off by a deviation of 0", "[codecs]") {
  Ends ends("up=terngrad");
  CHECK(ends.sent(Numbers(kSlice, 0.1f)) == Numbers(kSlice, 0.1f));
  Ends one("up=terngrad", 1);
  CHECK(one.sent({-3.0f}) == Numbers{-3.0f});
}

TEST_CASE("a message that was tampered with is refused, or is of as many numbers", "[codecs]") {
  const std::string choice = GENERATE(from_range(kAll));
  INFO(choice);
  Ends ends(choice);
  const RandomStream random(5, Purpose::test, 99);
  int refused = 0;
  int taken = 0;
  for (std::uint64_t round = 0; round < 100; ++round) {
    const std::vector<std::uint32_t> sound = words_in(ends.message(normal(kSlice, round)));
    for (std::uint64_t i = 0; i < 100; ++i) {
      const auto words = mutated(sound, random, 1000 * (100 * round + i));
      const Tensor message = words_tensor(ends.stream, words);
      const bool right = static_cast<bool>(check_message(ends.link.codec.get(), message, kSlice));
      Numbers out(kSlice);
      const bool whole_nan = words.size() == 1 && words.front() == 0x7fc00000u;
      CHECK((whole_nan ||
             static_cast<bool>(ends.link.codec->read(words, kSlice, out.data())) == right));
      refused += right ? 0 : 1;
      taken += right ? 1 : 0;
      if (right) {
        CHECK(decoded(ends.stream, *ends.link.codec, message, kSlice).elements() == kSlice);
      }
    }
  }
  CHECK(refused + taken == 10000);
  CHECK(refused > 2000);  // at least what is too short or too long
  CHECK(taken > 500);     // a number is as good as another
}

TEST_CASE("what announces more than it has is refused before memory is asked for", "[codecs]") {
  struct Row {
    std::string choice;
    std::vector<std::uint32_t> words;
    std::string sentence;
  };

  using Words = std::vector<std::uint32_t>;
  const std::vector<Row> rows = {
      {"up=top_k", {}, "announces more"},
      {"up=top_k", {0xffffffffu}, "announces more"},
      {"up=top_k", {2, 0, 0, 5, 5}, "not in order"},
      {"up=top_k", {2, 0, 0, 5, 448}, "not in the slice"},
      {"up=top_k", {2, 0, 0, 5}, "has 1 words where 2"},
      {"up=strom", {0}, "no threshold"},
      {"up=strom", {0, 0xffffffffu}, "announces 4294967295 numbers of a slice of 448"},
      {"up=strom", {0, 400, 1}, "has 1 words where 400"},
      {"up.strom.coding=golomb", {0, 400, 1}, "announces more"},
      {"up.strom.coding=golomb", {0, 1, 77, 1}, "code of its places"},
      {"up.strom.coding=golomb", {0, 1, 0, 0}, "not in the slice"},
      {"up.strom.coding=golomb", {0, 1, 0, 1, 0}, "longer"},
      {"up=fp16", {1, 2, 3}, "has 3 words where 224"},
      {"up=qsgd", {}, "norms"},
      {"up=qsgd", {0, 0, 0}, "ends within a number"},
      {"up=qsgd", {0, 0, 0x10000u, 0}, "a level that does not exist"},
      {"up.qsgd.coding=recursive", {}, "norms"},
      {"up.qsgd.coding=recursive", {0, 0xffffffffu}, "ends within a number"},
      {"up.qsgd.coding=recursive",
       Words(44),
       "a place"},  // 448 numbers of three zeros are 42 words
  };
  for (const Row& row : rows) {
    INFO(row.choice << ", " << row.words.size() << " words");
    Ends ends(row.choice);
    const auto verdict =
        check_message(ends.link.codec.get(), words_tensor(ends.stream, row.words), kSlice);
    REQUIRE(!verdict);
    CHECK_THAT(verdict.error().message, Catch::Contains(row.sentence));
  }
  Ends ends("up=fp16");
  const auto plain = check_message(ends.link.codec.get(), ends.tensor(Numbers(kSlice)), kSlice);
  REQUIRE(!plain);
  CHECK_THAT(plain.error().message, Catch::Contains("float32 where int32"));
  const auto coded = check_message(nullptr, ends.message(Numbers(kSlice)), kSlice);
  REQUIRE(!coded);
  CHECK_THAT(coded.error().message, Catch::Contains("int32 where float32"));
  const auto shorter = check_message(nullptr, ends.tensor(Numbers(kSlice)), kSlice + 1);
  REQUIRE(!shorter);
  CHECK_THAT(shorter.error().message, Catch::Contains("448 numbers where 449"));
}

TEST_CASE("a threshold that adapts comes to send what it is to send", "[codecs]") {
  for (const char* threshold : {"1e-4", "1000"}) {
    Ends ends(std::string("up.strom.density=0.05 up.strom.threshold=") + threshold);
    double sent = 0;
    for (std::uint64_t step = 0; step < 600; ++step) {
      const Numbers got = ends.sent(normal(kSlice, step));
      sent += step < 400 ? 0
                         : static_cast<double>(std::count_if(
                               got.begin(), got.end(), [](float v) { return v != 0; }));
    }
    CHECK(sent / 200 > 0.5 * 0.05 * kSlice);
    CHECK(sent / 200 < 2 * 0.05 * kSlice);
  }
}

TEST_CASE("dgc sends velocities, and masks what it has sent", "[codecs]") {
  const bool masking = GENERATE(true, false);
  const bool nesterov = GENERATE(true, false);
  constexpr std::int64_t n = 16;
  const auto set = [](bool on) {
    return on ? "true" : "false";
  };
  Ends ends(concat("up.dgc.momentum=0.5 up.dgc.density=0.125 up.dgc.masking=",
                   set(masking),
                   " up.dgc.nesterov=",
                   set(nesterov)),
            n);
  std::vector<double> u(n);
  std::vector<double> v(n);
  for (std::uint64_t step = 0; step < 50; ++step) {
    const Numbers g = normal(n, step);
    for (std::size_t i = 0; i < n; ++i) {
      u[i] = 0.5 * u[i] + g[i];
      v[i] += nesterov ? g[i] + 0.5 * u[i] : u[i];
    }
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::abs(v[a]) > std::abs(v[b]);
    });
    Numbers right(n);
    for (const std::size_t i : {order[0], order[1]}) {
      right[i] = static_cast<float>(v[i]);
      v[i] = 0;
      u[i] = masking ? 0 : u[i];
    }
    const Numbers got = ends.sent(g);
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(got[i] == Approx(right[i]).margin(1e-5));
    }
  }
}

TEST_CASE("dgc begins with a quarter and comes to its density in four stages", "[codecs]") {
  constexpr std::int64_t n = 1 << 14;
  Ends ends("up.dgc.density=0.0009765625 up.dgc.warm_up=8", n);  // 1/4 4^-4
  std::vector<std::int64_t> counts;
  for (std::uint64_t step = 0; step < 10; ++step) {
    counts.push_back((ends.message(normal(n, step)).elements() - 1) / 2);
  }
  CHECK(counts == std::vector<std::int64_t>{4096, 4096, 1024, 1024, 256, 256, 64, 64, 16, 16});
}

}  // namespace codec_messages_test
