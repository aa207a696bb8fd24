// A link on a GPU against the same link on the host. Skipped where there is no GPU.
#include "tests/runtime/schemes/codecs/codec_fixture.hpp"
#include "tests/support/skip.hpp"

#include <limits>

namespace device_link_gpu_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// What a checkpoint keeps, and where a run on `device` finds it again.
LinkState archived(LinkState state, Device device) {
  Archive out;
  out(state);
  Archive in(out.take());
  in.set_device(device);
  LinkState back;
  in(back);
  return back;
}

}  // namespace

TEST_CASE("a link on a GPU sends the host's words and keeps what it keeps", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  const std::string choice = GENERATE(as<std::string>(),
                                      "up=fp16",
                                      "up=bf16 feedback=off",
                                      "up=int8_block",
                                      "up.int8_block.rounding=stochastic feedback=on",
                                      "up.int4_block.block=100",
                                      "up.int4_block.rounding=stochastic",
                                      "up.top_k.density=0.1");
  INFO(choice);
  Ends host(choice);
  Ends there(choice);
  Stream stream{kGpu};
  for (std::uint64_t step = 0; step < 30; ++step) {
    Numbers x = normal(kSlice, step, 0.1);
    if (step == 10) {
      x[17] = std::numeric_limits<float>::infinity();
    }
    const Tensor right = host.link.encode(host.stream, host.tensor(x), 0.3, host.state);
    const Tensor update = from_host(stream, x, {kSlice});
    const Tensor got = there.link.encode(stream, update, 0.3, there.state);
    REQUIRE(words_in(got) == words_in(right));
    const auto read = to_host(decoded(stream, *there.link.codec, got, kSlice));
    const Numbers expected = host.read(right);
    for (std::size_t i = 0; i < expected.size() && step != 10; ++i) {
      CHECK(read[i] == expected[i]);
    }
    if (host.link.feedback) {
      const Numbers left = host.left();
      CHECK(to_host(there.state.tensors[0]) == std::vector<double>(left.begin(), left.end()));
    }
    if (step % 10 == 5) {  // a checkpoint of the GPU's goes on there, and one of the host's too
      there.state = step == 15 ? archived(host.state, {}) : archived(there.state, kGpu);
    }
  }
}

}  // namespace device_link_gpu_test
