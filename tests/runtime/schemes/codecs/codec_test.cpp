// Laws of codecs: nothing is lost with feedback, the mean is right without bias, what fits is exact.
#include "tests/runtime/schemes/codecs/codec_fixture.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>

namespace codec_test {

using namespace troupe;
using namespace troupe::test;

namespace {

LinkState archived(LinkState state) {
  Archive out;
  out(state);
  Archive in(out.take());
  LinkState back;
  in(back);
  in.expect_end();
  return back;
}

const std::vector<std::string> kWithFeedback = {"up=fp16",
                                                "up=bf16",
                                                "up=int8_block",
                                                "up.int8_block.rounding=stochastic feedback=on",
                                                "up=int4_block",
                                                "up=e3m0",
                                                "up=one_bit",
                                                "up.one_bit.per=tensor",
                                                "up.strom.threshold=0.1",
                                                "up.strom.density=0.05 up.strom.coding=golomb",
                                                "up.top_k.density=0.05",
                                                "up.top_k.per=tensor up.top_k.coding=golomb",
                                                "up.random_k.density=0.1",
                                                "up.dgc.momentum=0 up.dgc.warm_up=400",
                                                "up.powersgd.rank=1",
                                                "up.powersgd.rank=3",
                                                "up.powersgd.warm_start=false",
                                                "up.sign_vote.momentum=0 feedback=on"};

}  // namespace

TEST_CASE("what was sent and what is left are all that was to be sent", "[codecs]") {
  const std::string choice = GENERATE(from_range(kWithFeedback));
  INFO(choice);
  Ends ends(choice);
  REQUIRE(ends.link.feedback);
  Ends twin(choice);
  std::vector<double> updates(kSlice);
  std::vector<double> messages(kSlice);
  for (std::uint64_t step = 0; step < 1000; ++step) {
    const Numbers x = normal(kSlice, step, 0.1);
    const Tensor message = ends.message(x);
    const Numbers sent = ends.read(message);
    for (std::size_t i = 0; i < x.size(); ++i) {
      updates[i] += x[i];
      messages[i] += sent[i];
    }
    if (step == 500) {  // one of them is restarted
      twin.state = archived(std::move(twin.state));
    }
    REQUIRE(words_in(twin.message(x)) == words_in(message));
  }
  const Numbers left = ends.left();
  double most = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    most = std::max(most, std::abs(messages[i] + left[i] - updates[i]));
  }
  CHECK(most < 1e-3);  // an update is 0.1; the sums are of 3, in float32
  CHECK(twin.left() == left);
}

TEST_CASE("the mean of what is drawn at random is right", "[codecs]") {
  const std::string choice = GENERATE(as<std::string>(),
                                      "up.qsgd.levels=1",
                                      "up.qsgd.levels=4 up.qsgd.bucket=32",
                                      "up.qsgd.levels=5 up.qsgd.coding=fixed",
                                      "up.qsgd.levels=5 up.qsgd.coding=recursive",
                                      "up.terngrad.clip=0",
                                      "up.terngrad.clip=0 up.terngrad.per=slice",
                                      "up.int8_block.rounding=stochastic",
                                      "up.int4_block.rounding=stochastic",
                                      "up.e3m0.rounding=stochastic",
                                      "up.random_k.density=0.2 feedback=off");
  INFO(choice);
  constexpr int kDraws = 10000;
  constexpr std::int64_t n = 61;
  Ends ends(choice, n);
  REQUIRE(!ends.link.feedback);
  const Numbers x = normal(n, 3);
  std::vector<double> sums(n);
  std::vector<double> squares(n);
  for (int draw = 0; draw < kDraws; ++draw) {
    const Numbers got = ends.sent(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      sums[i] += got[i];
      squares[i] += static_cast<double>(got[i]) * got[i];
    }
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double mean = sums[i] / kDraws;
    const double deviation = std::sqrt(std::max(0.0, squares[i] / kDraws - mean * mean) / kDraws);
    INFO("number " << i << ": " << x[i] << ", mean " << mean << " +- " << deviation);
    CHECK(std::abs(mean - x[i]) <= 4.5 * deviation + 1e-5);
  }
}

TEST_CASE("every number of 16 bits comes back as it is", "[codecs]") {
  const bool half = GENERATE(true, false);
  constexpr std::int64_t n = 1 << 16;
  Ends ends(half ? "up=fp16 feedback=off" : "up=bf16 feedback=off", n);  // 0 keeps its sign
  std::vector<std::uint32_t> words;
  for (std::uint32_t i = 0; i < n; i += 2) {
    words.push_back(i | (i + 1) << 16);
  }
  Numbers all = ends.read(words_tensor(ends.stream, words));
  std::size_t finite = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto mag = static_cast<std::uint32_t>(i) & 0x7fffu;
    const bool is_finite = mag < (half ? 0x7c00u : 0x7f80u);
    CHECK(std::isfinite(all[i]) == is_finite);
    finite += is_finite ? 1 : 0;
    if (half && is_finite) {
      const int exponent = static_cast<int>(mag >> 10);
      const double fraction = (mag & 0x3ffu) / 1024.0;
      const double value =
          exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
      CHECK(all[i] == static_cast<float>(i >= 0x8000u ? -value : value));
    }
    all[i] = is_finite ? all[i] : 0;
  }
  CHECK(finite == (half ? 63488 : 65280));
  const Numbers back = ends.sent(all);
  CHECK(std::memcmp(back.data(), all.data(), 4 * all.size()) == 0);
}

TEST_CASE("half precision rounds to the nearest and stays finite", "[codecs]") {
  const std::map<float, float> rounded = {{65504.0f, 65504.0f},
                                          {65519.0f, 65504.0f},
                                          {65520.0f, 65504.0f},
                                          {1e30f, 65504.0f},
                                          {-1e30f, -65504.0f},
                                          {0x1p-24f, 0x1p-24f},
                                          {0x1p-25f, 0.0f},        // a tie
                                          {0x1.8p-24f, 0x1p-23f},  // a tie
                                          {0x1.0002p-25f, 0x1p-24f},
                                          {1.0f + 0x1p-11f, 1.0f},  // a tie
                                          {1.0f + 0x1.8p-10f, 1.0f + 0x1p-9f},
                                          {0x1.ff8p-15f, 0x1.ff8p-15f},
                                          {0x1.ffep-15f, 0x1p-14f}};
  Numbers x;
  Numbers right;
  for (const auto& [in, out] : rounded) {
    x.push_back(in);
    right.push_back(out);
  }
  Ends half("up=fp16", static_cast<std::int64_t>(x.size()));
  CHECK(half.sent(x) == right);
  Ends bf("up=bf16", 2);
  CHECK(bf.sent({std::numeric_limits<float>::max(), -1.0f}) == Numbers{0x1.fep127f, -1.0f});
}

TEST_CASE("places and levels are exact, however they are written", "[codecs]") {
  const Numbers x = normal(kSlice, 5);
  CHECK(Ends("up.top_k.density=1").sent(x) == x);
  CHECK(Ends("up.top_k.density=1 up.top_k.coding=golomb").sent(x) == x);
  for (const char* codec : {"top_k.density=0.03", "dgc.density=0.03", "strom.threshold=1.5"}) {
    const std::string key = std::string("up.") + codec;
    const std::string coding = key.substr(0, key.find('.', 3)) + ".coding=";
    Ends words(key + ' ' + coding + "words");
    Ends golomb(key + ' ' + coding + "golomb");
    const Numbers got = words.sent(x);
    CHECK(golomb.sent(x) == got);
    CHECK(std::count_if(got.begin(), got.end(), [](float v) { return v != 0; }) > 10);
  }
  Ends elias("up.qsgd.levels=100");
  Ends fixed("up.qsgd.levels=100 up.qsgd.coding=fixed");
  CHECK(elias.sent(x) == fixed.sent(x));
  // The k greatest are those that a sort finds.
  Numbers magnitudes;
  for (const float v : x) {
    magnitudes.push_back(std::abs(v));
  }
  std::sort(magnitudes.rbegin(), magnitudes.rend());
  const Numbers got = Ends("up.top_k.density=0.1").sent(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK((got[i] != 0) == (std::abs(x[i]) >= magnitudes[44]));
  }
}

TEST_CASE("the greatest of many are found by counting", "[codecs]") {
  constexpr std::int64_t n = 100000;
  Numbers x = normal(n, 6);
  for (std::size_t i = 0; i < 2000; ++i) {
    x[37 * i] = i % 2 == 0 ? 4.0f : -4.0f;  // ties: the first are sent
  }
  Ends ends("up.top_k.density=0.01", n);
  const Numbers got = ends.sent(x);
  std::int64_t sent = 0;
  float least = 100;
  for (std::size_t i = 0; i < got.size(); ++i) {
    sent += got[i] != 0 ? 1 : 0;
    least = got[i] != 0 ? std::min(least, std::abs(got[i])) : least;
    CHECK((got[i] == 0 || got[i] == x[i]));
  }
  CHECK(sent == 1000);
  CHECK(least == 4.0f);
  CHECK(got[0] != 0);
  CHECK(got[37 * 1999] == 0);
}

TEST_CASE("a message has the bytes that its formula says", "[codecs]") {
  const Numbers x = normal(kSlice, 8);
  const auto bytes = [&](const std::string& choice) {
    return 4 * Ends(choice).message(x).elements();
  };
  CHECK(bytes("up=fp16") == 2 * kSlice);
  CHECK(bytes("up=int8_block") == kSlice + 4 * 7);
  CHECK(bytes("up=int4_block") == kSlice / 2 + 4 * 7);
  CHECK(bytes("up=e3m0") == kSlice / 2 + 4 * 7);
  CHECK(bytes("up=one_bit") == kSlice / 8 + 8 * (20 + 1 + 1 + 7 + 1 + 1));
  CHECK(bytes("up.one_bit.per=tensor") == kSlice / 8 + 8 * 6);
  CHECK(bytes("up.top_k.density=0.1") == 4 + 8 * 45);
  CHECK(bytes("up.random_k.density=0.1") == 8 + 4 * 45);
  CHECK(bytes("up=terngrad") == kSlice / 4 + 4 * 6);
  CHECK(bytes("up.terngrad.per=slice") == kSlice / 4 + 4);
  CHECK(bytes("up.dgc.density=0.1") == 4 + 8 * (26 + 2 + 1 + 14 + 1 + 1));
  // w1 and w2 in factors, the rest as it is
  CHECK(bytes("up.powersgd.rank=2") == 4 * (2 * (20 + 13) + 2 * (7 + 20) + kSlice - 260 - 140));
  CHECK(bytes("up=sign_vote") == kSlice / 8);
  CHECK(bytes("up=sign_vote feedback=on") == kSlice / 8 + 4);
  CHECK(bytes("up.powersgd.rank=9") == 4 * kSlice);  // no smaller than the matrices
  const Numbers got = Ends("up.strom.threshold=1").sent(x);
  const auto sent = std::count_if(got.begin(), got.end(), [](float v) { return v != 0; });
  CHECK(bytes("up.strom.threshold=1") == 8 + 4 * sent);
  // Golomb-Rice is within half a bit of a place's entropy, log2(n / k) + 1.44 bits.
  constexpr std::int64_t n = 1 << 20;
  const Numbers many = normal(n, 9);
  const double k = 0.001 * n;
  const double values = 12 + 4 * k;
  const double golomb = static_cast<double>(
      4 * Ends("up.top_k.density=0.001 up.top_k.coding=golomb", n).message(many).elements());
  CHECK(golomb - values < k * (std::log2(1000) + 1.44 + 0.5) / 8);
}

TEST_CASE("the same seed draws the same, another link something else", "[codecs]") {
  for (const char* choice :
       {"up=qsgd", "up=terngrad", "up.int8_block.rounding=stochastic", "up=random_k"}) {
    INFO(choice);
    const Numbers x = normal(kSlice, 10);
    Ends one(choice);
    Ends same(choice);
    Ends other(choice);
    other.link.name = link_name(2, 0, 0);
    Ends seeded(choice);
    seeded.link.seed = 8;
    const auto first = words_in(one.message(x));
    CHECK(words_in(same.message(x)) == first);
    CHECK(words_in(other.message(x)) != first);
    CHECK(words_in(seeded.message(x)) != first);
    CHECK(words_in(one.message(x)) != first);  // the next message
  }
}

TEST_CASE("a matrix of rank 1 needs one pair of factors", "[codecs]") {
  Numbers x(kSlice);
  const Numbers rows = normal(20, 20);
  const Numbers columns = normal(13, 21);
  for (std::size_t i = 0; i < 260; ++i) {
    x[i] = rows[i / 13] * columns[i % 13];
  }
  const Numbers got = Ends("up.powersgd.rank=1").sent(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(got[i] == Approx(x[i]).margin(1e-5));
  }
}

TEST_CASE("factors are as good of very large and very small numbers", "[codecs]") {
  // Powers of two, so that nothing else differs; |M|^2 is beyond float32 in both directions.
  const float scale = GENERATE(0x1p+62f, 0x1p-78f);
  INFO(scale);
  Ends ends("up.powersgd.rank=2");
  Ends scaled("up.powersgd.rank=2");
  for (std::uint64_t message = 0; message < 4; ++message) {
    const Numbers x = normal(kSlice, 30 + message);
    Numbers y = x;
    for (float& v : y) {
      v *= scale;
    }
    const Numbers got = ends.sent(x);
    const Numbers got_scaled = scaled.sent(y);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got_scaled[i] / scale == Approx(got[i]).margin(1e-5));
    }
  }
}

TEST_CASE("levels of numbers whose norm is beyond float32 are numbers", "[codecs]") {
  const Numbers got = Ends("up.qsgd.levels=32").sent(Numbers(kSlice, 0x1p+125f));
  double sum = 0;
  for (const float v : got) {
    REQUIRE(std::isfinite(v));
    sum += static_cast<double>(v);
  }
  CHECK(sum / kSlice == Approx(0x1p+125).epsilon(0.3));
}

}  // namespace codec_test
