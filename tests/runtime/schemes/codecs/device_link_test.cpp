// The ends of a link by kernels, here on the CPU: the messages and the memory of the link on the host.
#include "runtime/schemes/codecs/device_link.hpp"

#include "tests/runtime/schemes/codecs/codec_fixture.hpp"

#include <limits>

namespace device_link_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<std::string> kByKernels = {
    "up=fp16",
    "up=fp16 feedback=off",
    "up=bf16",
    "up=int8_block",
    "up.int8_block.block=24 feedback=off",
    "up.int8_block.rounding=stochastic feedback=on",
    "up.int4_block.block=100",
    "up.int4_block.rounding=stochastic",
    "up=one_bit",
    "up.one_bit.per=tensor",
};

/// A link's sender by kernels.
struct Twin {
  explicit Twin(const std::string& choice, std::int64_t n = kSlice) : ends(choice, n) {}

  Tensor message(const Numbers& x, double scale) {
    RandomStream random(ends.link.seed, Purpose::sample, ends.link.name);
    random.key = random.bits(static_cast<std::uint64_t>(ends.state.messages));
    const auto code = ends.link.codec->code(random);
    REQUIRE(code);
    return encode_on_device(
        *code, ends.link.feedback, ends.stream, ends.tensor(x), scale, ends.state);
  }

  Numbers read(const Tensor& message) {
    const auto code = ends.link.codec->code(RandomStream(0, Purpose::sample));
    REQUIRE(check_message(ends.link.codec.get(), message, ends.n));
    const Tensor out = decoded_on_device(*code, ends.stream, message, ends.n);
    return {out.span<float>().begin(), out.span<float>().end()};
  }

  Ends ends;
};

LinkState archived(LinkState state) {
  Archive out;
  out(state);
  Archive in(out.take());
  LinkState back;
  in(back);
  in.expect_end();
  return back;
}

/// Of one_bit the kernels add up a row in double, the host's loops in float32 first.
void check_near(const Numbers& got, const Numbers& right, double relative) {
  REQUIRE(got.size() == right.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == Approx(right[i]).epsilon(relative).margin(relative));
  }
}

}  // namespace

TEST_CASE("a link by kernels sends the host's words and keeps what it keeps", "[codecs]") {
  const std::string choice = GENERATE(from_range(kByKernels));
  INFO(choice);
  const bool sums = choice.find("one_bit") != std::string::npos;
  Ends host(choice);
  Twin twin(choice);
  for (std::uint64_t step = 0; step < 30; ++step) {
    Numbers x = normal(kSlice, step, 0.1);
    if (step == 10) {
      x[17] = std::numeric_limits<float>::infinity();  // makes no message
    }
    const double scale = step % 3 == 0 ? 1 : 0.3;
    const Tensor right = host.link.encode(host.stream, host.tensor(x), scale, host.state);
    const Tensor got = twin.message(x, scale);
    REQUIRE(got.elements() == right.elements());
    CHECK(twin.ends.state.messages == host.state.messages);
    if (step == 10) {
      CHECK(words_in(got) == words_in(right));
      continue;
    }
    if (sums) {
      check_near(host.read(got), host.read(right), 1e-5);
      check_near(twin.ends.left(), host.left(), 1e-4);
    } else {
      CHECK(words_in(got) == words_in(right));
      CHECK(twin.ends.left() == host.left());
    }
    CHECK(twin.read(got) == host.read(got));
    if (step == 20) {
      twin.ends.state = archived(std::move(twin.ends.state));
    }
  }
}

TEST_CASE("either end of a link goes on with the other's memory", "[codecs]") {
  Ends host("up=int4_block");
  Twin twin("up=int4_block");
  for (std::uint64_t step = 0; step < 8; ++step) {
    const Numbers x = normal(kSlice, step);
    CHECK(words_in(twin.message(x, 1)) == words_in(host.message(x)));
    std::swap(twin.ends.state, host.state);
  }
}

TEST_CASE("kernels read every message as the host does", "[codecs]") {
  const std::string choice = GENERATE(from_range(kByKernels));
  INFO(choice);
  Twin twin(choice);
  std::vector<std::uint32_t> words = words_in(twin.message(normal(kSlice, 1), 1));
  const RandomStream random(5, Purpose::test);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = static_cast<std::uint32_t>(random.bits(i));
  }
  const Tensor message = words_tensor(twin.ends.stream, words);
  const Numbers got = twin.read(message);
  const Numbers right = twin.ends.read(message);
  for (std::size_t i = 0; i < right.size(); ++i) {
    CHECK((got[i] == right[i] || (std::isnan(got[i]) && std::isnan(right[i]))));
  }
}

TEST_CASE("a codec with a memory of its own has no kernels", "[codecs]") {
  for (const char* choice : {"up=strom", "up=top_k", "up=powersgd", "up=sign_vote", "up=qsgd"}) {
    CHECK_FALSE(Ends(choice).link.codec->code(RandomStream(0, Purpose::sample)));
  }
}

TEST_CASE("a link by kernels of no number, and of no whole word", "[codecs]") {
  const std::string choice = GENERATE(from_range(kByKernels));
  INFO(choice);
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{33}}) {
    Ends host(choice, n);
    Twin twin(choice, n);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Numbers x = normal(n, step);
      const Tensor right = host.message(x);
      const Tensor got = twin.message(x, 1);
      REQUIRE(got.elements() == right.elements());
      check_near(twin.read(got), host.read(right), 1e-5);
    }
  }
}

}  // namespace device_link_test
