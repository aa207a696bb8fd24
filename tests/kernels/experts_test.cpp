// The parts of a mixture of experts against loops in double. cuda_experts_test.cpp compares the GPU's with these.
#include "kernels/experts.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace experts_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct Size {
  std::int64_t rows, experts, chosen;
};

const std::vector<Size> kSizes{
    {1, 1, 1}, {0, 3, 2}, {7, 2, 1}, {33, 5, 2}, {65, 40, 40}, {130, 8, 3}, {19, 70, 1}};

std::size_t at(std::int64_t row, std::int64_t columns, std::int64_t column) {
  return static_cast<std::size_t>(row * columns + column);
}

/// Softmax, the largest ones first, and their gates, in double.
struct Routed {
  Routed(const Size& s, const Values& logits) {
    for (std::int64_t r = 0; r < s.rows; ++r) {
      const double* x = logits.data() + r * s.experts;
      const double largest = *std::max_element(x, x + s.experts);
      double sum = 0;
      for (std::int64_t e = 0; e < s.experts; ++e) {
        sum += std::exp(x[e] - largest);
      }
      for (std::int64_t e = 0; e < s.experts; ++e) {
        shares.push_back(std::exp(x[e] - largest) / sum);
      }
      std::vector<std::int64_t> order(static_cast<std::size_t>(s.experts));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return x[a] > x[b]; });
      double of_chosen = 0;
      for (std::int64_t j = 0; j < s.chosen; ++j) {
        choices.push_back(static_cast<double>(order[static_cast<std::size_t>(j)]));
        of_chosen += shares[at(r, s.experts, order[static_cast<std::size_t>(j)])];
      }
      for (std::int64_t j = 0; j < s.chosen; ++j) {
        gates.push_back(shares[at(r, s.experts, order[static_cast<std::size_t>(j)])] /
                        (s.chosen > 1 ? of_chosen : 1));
      }
    }
  }

  Values shares;
  Values choices;
  Values gates;
};

struct Chosen {
  Chosen(Stream& stream, const Size& s, const Tensor& logits)
      : shares(stream.allocate(logits.shape())),
        choices(stream.allocate({s.rows, s.chosen}, DType::int32)),
        gates(stream.allocate({s.rows, s.chosen})) {
    choose_experts(stream, logits, shares, choices, gates);
  }

  Tensor shares;
  Tensor choices;
  Tensor gates;
};

struct Seated {
  Seated(Stream& stream, const Size& s, const Tensor& choices, const ExpertSeats& o)
      : seats(stream.allocate(choices.shape(), DType::int32)),
        begins(stream.allocate({o.count + 1}, DType::int32)),
        firsts(stream.allocate({s.experts}, DType::int32)) {
    seat_choices(stream,
                 {.experts = s.experts,
                  .first = o.first,
                  .count = o.count,
                  .room = o.room,
                  .whole_rooms = o.whole_rooms,
                  .multiple = o.multiple,
                  .choices = choices,
                  .seats = seats,
                  .begins = begins,
                  .firsts = firsts});
  }

  std::int64_t rows() const { return begins.span<std::int32_t>().back(); }

  Tensor seats;
  Tensor begins;
  Tensor firsts;
};

/// Everything but the tensors.
ExpertSeats form(std::int64_t first,
                 std::int64_t count,
                 std::int64_t room,
                 bool whole_rooms = false,
                 std::int64_t multiple = 1) {
  static const Tensor none;
  return {.first = first,
          .count = count,
          .room = room,
          .whole_rooms = whole_rooms,
          .multiple = multiple,
          .choices = none,
          .seats = none,
          .begins = none,
          .firsts = none};
}

}  // namespace

TEST_CASE("experts are chosen by the largest logits", "[kernels]") {
  Stream stream{Device{}};
  for (const Size& s : kSizes) {
    INFO(s.rows << " rows, " << s.chosen << " of " << s.experts);
    const Tensor logits = normal_tensor(stream, 1, {s.rows, s.experts});
    const Routed expected(s, to_host(logits));
    const Chosen chosen(stream, s, logits);
    CHECK(to_host(chosen.choices) == expected.choices);
    // An exponential of two units in the last place, and its rounding.
    check_close("shares", to_host(chosen.shares), expected.shares, {1e-12, 4e-7});
    check_close("gates", to_host(chosen.gates), expected.gates, {1e-12, 5e-7});
    choose_experts(stream, logits, logits, chosen.choices, chosen.gates);
    CHECK(to_host(logits) == to_host(chosen.shares));
  }
}

TEST_CASE("of equal logits the lower number is chosen, and a NaN last", "[kernels]") {
  Stream stream{Device{}};
  const Size s{200, 9, 4};
  const Tensor logits = stream.allocate({s.rows, s.experts});
  const Values few = to_host(random_labels(stream, 1, logits.elements(), 3));
  std::copy(few.begin(), few.end(), logits.span<float>().begin());
  CHECK(to_host(Chosen(stream, s, logits).choices) == Routed(s, few).choices);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{nan, 1, 2, nan, nan, nan};
  const Tensor with = from_host(stream, std::span<const float>(values), {2, 3});
  const Chosen chosen(stream, {2, 3, 3}, with);
  CHECK(to_host(chosen.choices) == Values{2, 1, 0, 0, 1, 2});
  for (const float share : chosen.shares.span<float>()) {
    CHECK(std::isnan(share));
  }
}

TEST_CASE("the gradient by the logits is that of gates and balance", "[kernels]") {
  Stream stream{Device{}};
  for (const Size& s : kSizes) {
    if (s.rows == 0) {
      continue;
    }
    for (const double balance : {0.0, 30.0}) {
      INFO(s.rows << " rows, " << s.chosen << " of " << s.experts);
      const Tensor logits = normal_tensor(stream, 1, {s.rows, s.experts});
      const Tensor by_gates = normal_tensor(stream, 2, {s.rows, s.chosen});
      const Chosen chosen(stream, s, logits);
      const Seated seated(stream, s, chosen.choices, form(0, s.experts, s.rows));
      const Tensor by_logits = stream.allocate(logits.shape());
      choose_experts_gradient(stream,
                              {.shares = chosen.shares,
                               .choices = chosen.choices,
                               .gates = chosen.gates,
                               .by_gates = by_gates,
                               .firsts = seated.firsts,
                               .balance = balance,
                               .by_logits = by_logits});
      // Who is chosen does not change by so little: the loss is smooth there.
      const Values d = to_host(by_gates);
      const Values firsts = to_host(seated.firsts);
      const auto loss = [&](const Values& x) {
        const Routed routed(s, x);
        REQUIRE(routed.choices == to_host(chosen.choices));
        double sum = std::inner_product(d.begin(), d.end(), routed.gates.begin(), 0.0);
        const auto rows = static_cast<double>(s.rows);
        for (std::size_t i = 0; i < routed.shares.size(); ++i) {
          sum += balance * static_cast<double>(s.experts) *
                 firsts[i % static_cast<std::size_t>(s.experts)] / rows * routed.shares[i] / rows;
        }
        return sum;
      };
      const double step = 1e-7;
      Values expected;
      for (std::int64_t e = 0; e < std::min<std::int64_t>(s.experts, 9); ++e) {
        Values up = to_host(logits);
        Values down = up;
        up[at(s.rows / 2, s.experts, e)] += step;
        down[at(s.rows / 2, s.experts, e)] -= step;
        expected.push_back((loss(up) - loss(down)) / (2 * step));
      }
      Values got = to_host(by_logits.view(s.rows / 2 * s.experts, {s.experts}));
      got.resize(expected.size());
      // The difference of losses of a hundred, in double; gates and shares in float.
      check_close("by_logits", got, expected, {1e-6, 2e-6});
    }
  }
}

TEST_CASE("seats are given in the order of choices and rows, as long as there is room",
          "[kernels]") {
  Stream stream{Device{}};
  for (const Size& s : kSizes) {
    const Tensor logits = normal_tensor(stream, 1, {s.rows, s.experts});
    const Chosen chosen(stream, s, logits);
    const Values choices = to_host(chosen.choices);
    const std::int64_t first = s.experts / 3;
    for (const auto& o : {form(0, s.experts, s.rows),
                          form(0, s.experts, 3),
                          form(0, s.experts, 3, true),
                          form(first, s.experts - first, 2, false, 4),
                          form(first, s.experts - first, 5, true, 4)}) {
      INFO(s.rows << " rows, " << s.chosen << " of " << s.experts << ", room " << o.room);
      Values seats(choices.size(), -1);
      Values firsts(static_cast<std::size_t>(s.experts), 0);
      Values begins{0};
      for (std::int64_t e = 0; e < s.experts; ++e) {
        std::int64_t taken = 0;
        for (std::int64_t j = 0; j < s.chosen; ++j) {
          for (std::int64_t r = 0; r < s.rows; ++r) {
            const bool mine = choices[at(r, s.chosen, j)] == static_cast<double>(e);
            firsts[static_cast<std::size_t>(e)] += mine && j == 0 ? 1 : 0;
            if (mine && taken < o.room && e >= o.first && e < o.first + o.count) {
              seats[at(r, s.chosen, j)] = begins.back() + static_cast<double>(taken++);
            }
          }
        }
        if (e >= o.first && e < o.first + o.count) {
          while (taken % o.multiple != 0 || (o.whole_rooms && taken < o.room)) {
            ++taken;
          }
          begins.push_back(begins.back() + static_cast<double>(taken));
        }
      }
      const Seated seated(stream, s, chosen.choices, o);
      CHECK(to_host(seated.seats) == seats);
      CHECK(to_host(seated.begins) == begins);
      CHECK(to_host(seated.firsts) == firsts);
    }
  }
}

TEST_CASE("rows go to their seats, and come back by their gates", "[kernels]") {
  Stream stream{Device{}};
  for (const std::int64_t width : {1, 7, 64}) {
    for (const Size& s : kSizes) {
      INFO(s.rows << " rows of " << width << ", " << s.chosen << " of " << s.experts);
      const Chosen chosen(stream, s, normal_tensor(stream, 1, {s.rows, s.experts}));
      const std::int64_t first = s.experts / 3;
      const Seated seated(stream, s, chosen.choices, form(first, s.experts - first, 4, false, 3));
      const Values seats = to_host(seated.seats);
      const Values gates = to_host(chosen.gates);
      const Tensor x = normal_tensor(stream, 2, {s.rows, width});
      const Tensor rows = stream.allocate({seated.rows(), width});
      const Tensor taken = stream.allocate({seated.rows()}, DType::int32);
      gather_rows(stream, x, seated.seats, taken, rows);
      Values who(static_cast<std::size_t>(seated.rows()), -1);
      for (std::size_t i = 0; i < seats.size(); ++i) {
        if (seats[i] >= 0) {
          who[static_cast<std::size_t>(seats[i])] = static_cast<double>(i);
        }
      }
      CHECK(to_host(taken) == who);
      const Values from = to_host(x);
      Values gathered;
      for (const double choice : who) {
        for (std::int64_t c = 0; c < width; ++c) {
          const auto row = static_cast<std::int64_t>(choice) / s.chosen;
          gathered.push_back(choice < 0 ? 0 : from[at(row, width, c)]);
        }
      }
      CHECK(to_host(rows) == gathered);

      const Tensor made = normal_tensor(stream, 3, rows.shape());
      const Tensor dy = normal_tensor(stream, 4, x.shape());
      const Values outputs = to_host(made);
      const Values d = to_host(dy);
      Values y(from.size(), 0);
      Values plain(from.size(), 0);
      Values by_gates(seats.size(), 0);
      Values by_rows = outputs;
      for (std::size_t i = 0; i < seats.size(); ++i) {
        for (std::int64_t c = 0; seats[i] >= 0 && c < width; ++c) {
          const std::size_t to = at(static_cast<std::int64_t>(i) / s.chosen, width, c);
          const std::size_t seat = at(static_cast<std::int64_t>(seats[i]), width, c);
          y[to] += gates[i] * outputs[seat];
          plain[to] += outputs[seat];
          by_gates[i] += d[to] * outputs[seat];
          by_rows[seat] = gates[i] * d[to];
        }
      }
      const Tensor sum = stream.allocate(x.shape());
      // Some forty additions of normal numbers.
      add_rows(stream, made, seated.seats, chosen.gates, sum);
      check_close("y", to_host(sum), y, {4e-6, 2e-7});
      add_rows(stream, made, seated.seats, {}, sum);
      check_close("sum", to_host(sum), plain, {1e-5, 2e-7});
      const Tensor gradient = stream.allocate(chosen.gates.shape());
      add_rows_gradient(stream, dy, seated.seats, chosen.gates, made, gradient);
      check_close("by_gates", to_host(gradient), by_gates, {1e-12, 1e-7});
      check_close("by_rows", to_host(made), by_rows, {0, 1e-7});
    }
  }
}

TEST_CASE("mixtures say what disagrees", "[kernels]") {
  Stream stream{Device{}};
  const Tensor logits = stream.allocate({4, 3});
  const Tensor choices = stream.allocate({4, 2}, DType::int32);
  const Tensor gates = stream.allocate({4, 2});
  CHECK_THROWS_WITH(choose_experts(stream, logits, logits, choices, logits),
                    says("[choose_experts] gates is (4, 3), not (4, 2)"));
  const Tensor many = stream.allocate({4, 5}, DType::int32);
  CHECK_THROWS_WITH(choose_experts(stream, logits, logits, many, stream.allocate({4, 5})),
                    says("5 of 3 experts are chosen"));
  const std::vector<std::int32_t> wrong{0, 1, 2, 3};
  const Tensor beyond = from_host(stream, std::span<const std::int32_t>(wrong), {4, 1});
  CHECK_THROWS_WITH(Seated(stream, {4, 3, 1}, beyond, form(0, 3, 4)),
                    says("choice 3 of row 3 is not in [0, 3)"));
  CHECK_THROWS_WITH(Seated(stream, {4, 3, 1}, beyond, form(1, 3, 4)),
                    says("3 experts from 1 on, of 3"));
  CHECK_THROWS_WITH(add_rows(stream, logits, choices, gates, stream.allocate({5, 3})),
                    says("[add_rows] seats is (4, 2), not (5, columns)"));
  CHECK_THROWS_WITH(
      gather_rows(stream, logits, choices, stream.allocate({7}, DType::int32), logits),
      says("[gather_rows] taken is (7), not (4)"));
}

}  // namespace experts_test
