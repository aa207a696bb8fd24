// The order of deliveries that a run has recorded.
#include "messages/pipeline.hpp"
#include "runtime/record/order_log.hpp"
#include "runtime/record/order_text.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/script.hpp"

namespace troupe::fuzz {
namespace {

const Cast& cast() {
  static const Cast one = [] {
    Cast made = test::directed_by([](Message, double, Effects&) {});
    test::add(made, "stage-0", 0, test::answering(1));
    test::add(made, "stage-1", 1, test::answering(1));
    return made;
  }();
  return one;
}

}  // namespace

std::vector<std::string> seeds() {
  const auto path = files().folder() / "seed";
  std::filesystem::remove(path);
  auto text = OutputFile::create(path);
  OrderLog log(std::move(*text), {"director", "stage-0", "stage-1"});
  log.delivered(0.25, 1, Start{});
  log.delivered(1.0 / 3, 0, sent_by(1, Advance{5}));
  log.delivered(5e300, 1, Activation{{.replica = 1, .chunk = 2, .batch = 3, .micro_batch = 4}, {}});
  if (!log.close()) {
    return {};
  }
  return {Files::read(path)};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  fuzz::tried(
      read_order(fuzz::files().write("order-0.log", fuzz::text_of(data, size)), fuzz::cast(), 0));
  return 0;
}
