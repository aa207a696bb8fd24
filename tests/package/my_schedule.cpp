// troupe with a schedule more: asynchronous 1F1B that begins with some forwards more than it has to,
// so that a stage whose neighbour is late now and then has something in hand. The price is staleness.
#include <apps/cli/program.hpp>
#include <runtime/schemes/schedules/schedule_scheme.hpp>

#include <cstdint>
#include <iostream>

namespace {

void eager(troupe::SequenceBuilder& s) {
  const std::int64_t ahead =
      s.to_loss() + static_cast<std::int64_t>(s.values().number("more")) * (s.to_loss() > 0);
  for (std::int64_t n = 0; n < ahead; ++n) {
    s.forward(n);
  }
  s.begin_period();
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.forward(ahead + j);
    s.backward(j);
  }
  s.update(0);
}

}  // namespace

int main(int argc, char** argv) {
  const auto made = troupe::register_schedule(
      {.info = {.name = "eager_one_f_one_b",
                .summary = "d + n forwards, then one forward and one backward in turn for ever",
                .options = {{.name = "more",
                             .doc = "n: forwards that wait in the pipe",
                             .number = 1,
                             .at_least = 0,
                             .at_most = 64}}},
       .staleness = "d + n updates at M=1, 0 on the last stage",
       .bubble = "0 once the pipe is full",
       .write = eager});
  if (!made) {
    std::cerr << made.error().message << '\n';
    return 2;
  }
  return troupe::run_command_line(argc, argv);
}
