// The parts of a mixture of experts on CUDA against the CPU's, in float32 and bfloat16, and against themselves: a repetition
// gives the same bits. Skipped where there is no GPU.
#include "kernels/convert.hpp"
#include "kernels/experts.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace cuda_experts_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct Size {
  std::int64_t rows, experts, chosen, width;
};

const std::vector<Size> kSizes{
    {1, 1, 1, 1}, {7, 2, 1, 5}, {33, 5, 2, 8}, {20, 40, 40, 12}, {60, 35, 3, 48}};

struct Twin {
  Tensor cpu;
  Tensor gpu;
};

struct Streams {
  explicit Streams(Precision precision = Precision::fp32) : gpu(kGpu, precision) {}

  Stream cpu{Device{}};
  Stream gpu;

  /// What the CPU has, on both.
  Twin both(const Tensor& x) {
    Twin twin{x, gpu.allocate(x.shape(), x.type())};
    copy(gpu, x, twin.gpu);
    return twin;
  }

  /// Normal values that bfloat16 can hold where the GPU is to have them so.
  Twin normal(std::uint64_t seed, Shape shape, DType type = DType::float32) {
    const Tensor x = normal_tensor(cpu, seed, shape);
    if (type == DType::float32) {
      return both(x);
    }
    const Tensor narrow = cpu.allocate(shape, DType::bfloat16);
    convert(cpu, x, narrow);
    Twin twin = both(in_float32(cpu, narrow));
    twin.gpu = operand(gpu, twin.gpu);
    return twin;
  }

  Twin empty(Shape shape, DType type = DType::float32, DType on_gpu = DType::float32) {
    return {cpu.allocate(shape, type), gpu.allocate(shape, type == DType::int32 ? type : on_gpu)};
  }

  template <class F>
  void on_both(F f) {
    f(cpu, [](const Twin& twin) { return twin.cpu; });
    f(gpu, [](const Twin& twin) { return twin.gpu; });
  }
};

void check_same(const std::string& what, const Twin& twin, Tolerance tolerance = {}) {
  check_close(what, to_host(twin.gpu), to_host(twin.cpu), tolerance);
}

struct Routed {
  Routed(Streams& s, const Size& size, const Tensor& values)
      : logits(s.both(values)),
        shares(s.empty({size.rows, size.experts})),
        choices(s.empty({size.rows, size.chosen}, DType::int32)),
        gates(s.empty({size.rows, size.chosen})) {
    s.on_both([&](Stream& stream, auto of) {
      choose_experts(stream, of(logits), of(shares), of(choices), of(gates));
    });
  }

  Twin logits;
  Twin shares;
  Twin choices;
  Twin gates;
};

struct Form {
  std::int64_t first, count, room;
  bool whole_rooms = false;
  std::int64_t multiple = 1;
};

struct Seated {
  Seated(Streams& s, const Size& size, const Twin& choices, const Form& form)
      : seats(s.empty({size.rows, size.chosen}, DType::int32)),
        begins(s.empty({form.count + 1}, DType::int32)),
        firsts(s.empty({size.experts}, DType::int32)) {
    s.on_both([&](Stream& stream, auto of) {
      seat_choices(stream,
                   {.experts = size.experts,
                    .first = form.first,
                    .count = form.count,
                    .room = form.room,
                    .whole_rooms = form.whole_rooms,
                    .multiple = form.multiple,
                    .choices = of(choices),
                    .seats = of(seats),
                    .begins = of(begins),
                    .firsts = of(firsts)});
    });
  }

  std::int64_t rows() const { return begins.cpu.span<std::int32_t>().back(); }

  Twin seats;
  Twin begins;
  Twin firsts;
};

}  // namespace

TEST_CASE("on a GPU the same experts are chosen, and their gradient agrees", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  for (const Size& size : kSizes) {
    INFO(size.rows << " rows, " << size.chosen << " of " << size.experts);
    const Shape shape{size.rows, size.experts};
    const Tensor few = s.cpu.allocate(shape);  // with ties
    const Values labels = to_host(random_labels(s.cpu, 1, few.elements(), 3));
    std::copy(labels.begin(), labels.end(), few.span<float>().begin());
    const Tensor with_nan = normal_tensor(s.cpu, 2, shape);
    with_nan.span<float>().front() = std::numeric_limits<float>::quiet_NaN();
    CHECK(to_host(Routed(s, size, with_nan).choices.gpu) ==
          to_host(Routed(s, size, with_nan).choices.cpu));
    for (const Tensor& logits : {few, normal_tensor(s.cpu, 1, shape)}) {
      const Routed routed(s, size, logits);
      check_same("choices", routed.choices);
      // Doubles that are added up in another order, and rounded.
      check_same("shares", routed.shares, {0, 1.2e-7});
      check_same("gates", routed.gates, {0, 2.4e-7});
      const Seated seated(s, size, routed.choices, {0, size.experts, size.rows});
      const Twin shares = s.both(routed.shares.cpu);
      const Twin gates = s.both(routed.gates.cpu);
      const Twin by_gates = s.normal(3, {size.rows, size.chosen});
      const Twin by_logits = s.empty(shape);
      s.on_both([&](Stream& stream, auto of) {
        choose_experts_gradient(stream,
                                {.shares = of(shares),
                                 .choices = of(routed.choices),
                                 .gates = of(gates),
                                 .by_gates = of(by_gates),
                                 .firsts = of(seated.firsts),
                                 .balance = 0.7,
                                 .by_logits = of(by_logits)});
      });
      check_same("by_logits", by_logits, {1e-15, 1.2e-7});
    }
  }
}

TEST_CASE("on a GPU the same seats are given", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Streams s;
  std::vector<Size> sizes = kSizes;
  sizes.push_back({2500, 3, 2, 1});  // a block looks at 4096 choices at a time
  for (const Size& size : sizes) {
    const Routed routed(s, size, normal_tensor(s.cpu, 1, {size.rows, size.experts}));
    const std::int64_t first = size.experts / 3;
    for (const Form& form : {Form{0, size.experts, size.rows},
                             Form{0, size.experts, (size.rows + 3) / 4, true},
                             Form{first, size.experts - first, 2, false, 4},
                             Form{first, size.experts - first, 1300, false, 64},
                             Form{first, size.experts - first, 5, true, 4}}) {
      INFO(size.rows << " rows, " << size.chosen << " of " << size.experts << ", room "
                     << form.room);
      const Seated seated(s, size, routed.choices, form);
      check_same("seats", seated.seats);
      check_same("begins", seated.begins);
      check_same("firsts", seated.firsts);
    }
  }
}

TEST_CASE("on a GPU rows go to their seats and come back alike, in both types", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  std::vector<DType> types{DType::float32};
  if (check_precision(kGpu, Precision::bf16)) {
    types.push_back(DType::bfloat16);
  }
  for (const DType type : types) {
    Streams s(type == DType::bfloat16 ? Precision::bf16 : Precision::fp32);
    const bool half = type == DType::bfloat16;
    // Half a unit in the last place of bfloat16.
    const Tolerance rounded{0, half ? 0x1p-8 : 0};
    for (const Size& size : kSizes) {
      INFO(to_string(type) << ' ' << size.rows << " rows of " << size.width << ", " << size.chosen
                           << " of " << size.experts);
      const Routed routed(s, size, normal_tensor(s.cpu, 1, {size.rows, size.experts}));
      const Twin gates = s.both(routed.gates.cpu);
      const std::int64_t first = size.experts / 3;
      const Seated seated(
          s, size, routed.choices, {first, size.experts - first, size.rows / 2 + 1, false, 4});
      const Shape of_x{size.rows, size.width};
      const Shape of_rows{seated.rows(), size.width};
      const Twin x = s.normal(2, of_x, type);
      const Twin rows = s.empty(of_rows, DType::float32, type);
      const Twin taken = s.empty({seated.rows()}, DType::int32);
      s.on_both([&](Stream& stream, auto of) {
        gather_rows(stream, of(x), of(seated.seats), of(taken), of(rows));
      });
      check_same("taken", taken);
      check_same("rows", rows);
      const Twin outputs = s.normal(3, of_rows, type);
      const Twin y = s.empty(of_x, DType::float32, type);
      for (const bool with_gates : {true, false}) {
        s.on_both([&](Stream& stream, auto of) {
          add_rows(stream, of(outputs), of(seated.seats), with_gates ? of(gates) : Tensor{}, of(y));
        });
        check_same("y", y, rounded);
      }
      for (const DType of_dy : types) {
        const Twin made = s.normal(3, of_rows, type);
        const Tensor again = s.gpu.allocate(of_rows, type);
        copy(s.gpu, made.gpu, again);
        const Twin dy = s.normal(4, of_x, of_dy);
        const Twin by_gates = s.empty(gates.cpu.shape());
        s.on_both([&](Stream& stream, auto of) {
          add_rows_gradient(stream, of(dy), of(seated.seats), of(gates), of(made), of(by_gates));
        });
        // Of bfloat16 eight products are added up in float.
        check_same("by_gates", by_gates, {half ? 1e-5 : 1e-14, 1.2e-7});
        check_same("by_rows", made, rounded);
        const Values once = to_host(by_gates.gpu);
        add_rows_gradient(s.gpu, dy.gpu, seated.seats.gpu, gates.gpu, again, by_gates.gpu);
        CHECK(to_host(by_gates.gpu) == once);
        CHECK(to_host(again) == to_host(made.gpu));
      }
    }
  }
}

}  // namespace cuda_experts_test
