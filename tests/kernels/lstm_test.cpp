#include "kernels/lstm.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace lstm_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr Lstm kSizes[] = {
    {1, 1, 1, 1}, {3, 1, 2, 5}, {1, 4, 3, 2}, {2, 3, 5, 7}, {3, 5, 1, 17}, {2, 4, 9, 11}};

struct Layer {
  Tensor x;
  Tensor w_input;
  Tensor w_hidden;
  Tensor bias;
  Tensor dy;

  Layer(Stream& stream, const Lstm& s)
      : x(normal_tensor(stream, 1, {s.batch, s.length, s.inputs})),
        w_input(normal_tensor(stream, 2, {4 * s.cells, s.inputs})),
        w_hidden(normal_tensor(stream, 3, {4 * s.cells, s.cells})),
        bias(normal_tensor(stream, 4, {4 * s.cells})),
        dy(normal_tensor(stream, 5, {s.batch, s.length, s.cells})) {
    scale(stream, w_hidden, 0.5f);
  }
};

struct Outcome {
  Tensor y;
  Tensor gates;
  Tensor cells;
  Tensor dgates;
  Tensor dx;
};

Outcome run(Stream& stream, const Lstm& s, const Layer& layer) {
  const Outcome r{stream.allocate({s.batch, s.length, s.cells}),
                  stream.allocate({s.length, s.batch, 4 * s.cells}),
                  stream.allocate({s.length, s.batch, s.cells}),
                  stream.allocate({s.length, s.batch, 4 * s.cells}),
                  stream.allocate(layer.x.shape())};
  for (const Tensor& x : {r.y, r.gates, r.cells, r.dgates, r.dx}) {
    fill(stream, x, NAN);
  }
  lstm_forward(stream,
               {.x = layer.x,
                .w_input = layer.w_input,
                .w_hidden = layer.w_hidden,
                .bias = layer.bias,
                .y = r.y,
                .gates = r.gates,
                .cells = r.cells});
  lstm_input_gradient(stream,
                      {.w_input = layer.w_input,
                       .w_hidden = layer.w_hidden,
                       .gates = r.gates,
                       .cells = r.cells,
                       .dy = layer.dy,
                       .dgates = r.dgates,
                       .dx = r.dx});
  return r;
}

/// The gradient of f by each of `values`, by central differences: in double, exact to some 1e-9.
Values differences(Values values, const std::function<double(const Values&)>& f) {
  constexpr double h = 1e-5;
  Values gradient;
  for (double& value : values) {
    const double kept = value;
    value = kept + h;
    const double above = f(values);
    value = kept - h;
    const double below = f(values);
    value = kept;
    gradient.push_back((above - below) / (2 * h));
  }
  return gradient;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// Gates and states are of order 1, sums of I + H products err by some 1e-6, and a step hands at
// most about as much error on as it gets; a gradient adds up to B T such terms.
Tolerance tolerance(const Lstm& s) {
  return {5e-6 * std::sqrt(double(s.batch * s.length * (s.inputs + s.cells))), 5e-6};
}

}  // namespace

TEST_CASE("lstm agrees with the naive recurrence in double, and its gradients with differences",
          "[kernels]") {
  Stream stream{Device{}};
  for (const Lstm& s : kSizes) {
    INFO("B " << s.batch << " T " << s.length << " I " << s.inputs << " H " << s.cells);
    const Layer layer(stream, s);
    const Outcome r = run(stream, s, layer);
    const Values x = to_host(layer.x);
    const Values w_input = to_host(layer.w_input);
    const Values w_hidden = to_host(layer.w_hidden);
    const Values bias = to_host(layer.bias);
    const Values dy = to_host(layer.dy);
    check_close("y", to_host(r.y), lstm(s, x, w_input, w_hidden, bias), tolerance(s));

    check_close(
        "dx",
        to_host(r.dx),
        differences(x,
                    [&](const Values& v) { return dot(dy, lstm(s, v, w_input, w_hidden, bias)); }),
        tolerance(s));
    const Tensor dw_input = stream.allocate(layer.w_input.shape());
    const Tensor dw_hidden = stream.allocate(layer.w_hidden.shape());
    const Tensor dbias = stream.allocate(layer.bias.shape());
    for (const Tensor& d : {dw_input, dw_hidden, dbias}) {
      fill(stream, d, NAN);
    }
    lstm_weight_gradient(stream,
                         {.x = layer.x,
                          .y = r.y,
                          .dgates = r.dgates,
                          .dw_input = dw_input,
                          .dw_hidden = dw_hidden,
                          .dbias = dbias,
                          .accumulate = false});
    check_close(
        "dw_input",
        to_host(dw_input),
        differences(w_input,
                    [&](const Values& v) { return dot(dy, lstm(s, x, v, w_hidden, bias)); }),
        tolerance(s));
    check_close("dw_hidden",
                to_host(dw_hidden),
                differences(w_hidden,
                            [&](const Values& v) { return dot(dy, lstm(s, x, w_input, v, bias)); }),
                tolerance(s));
    check_close(
        "dbias",
        to_host(dbias),
        differences(bias,
                    [&](const Values& v) { return dot(dy, lstm(s, x, w_input, w_hidden, v)); }),
        tolerance(s));

    const std::vector<Tensor> gradients{dw_input, dw_hidden, dbias};
    std::vector<Values> more;
    for (const Tensor& d : gradients) {
      more.push_back(to_host(d));
      for (double& value : more.back()) {
        value += 1;
      }
      fill(stream, d, 1);
    }
    lstm_weight_gradient(stream,
                         {.x = layer.x,
                          .y = r.y,
                          .dgates = r.dgates,
                          .dw_input = dw_input,
                          .dw_hidden = dw_hidden,
                          .dbias = dbias,
                          .accumulate = true});
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      check_close("accumulated", to_host(gradients[i]), more[i], {1e-6, 1e-6});
    }
  }
}

TEST_CASE("a sequence in two pieces, which hand on states and gradients, is the whole one",
          "[kernels]") {
  Stream stream{Device{}};
  for (const Lstm& s : kSizes) {
    if (s.length < 2) {
      continue;
    }
    INFO("B " << s.batch << " T " << s.length << " I " << s.inputs << " H " << s.cells);
    const Layer layer(stream, s);
    const Outcome whole = run(stream, s, layer);
    const std::int64_t cut = s.length / 2;

    struct Piece {
      Lstm sizes;
      Tensor x, dy, y, gates, cells, dgates, dx;
      LstmState before, after, dbefore;
    };

    const auto part = [&](const Tensor& of, std::int64_t first, std::int64_t count) {
      const std::int64_t width = of.shape()[2];
      Tensor x = stream.allocate({s.batch, count, width});
      for (std::int64_t b = 0; b < s.batch; ++b) {
        copy(stream,
             of.view((b * s.length + first) * width, {count, width}),
             x.view(b * count * width, {count, width}));
      }
      return x;
    };
    const auto state = [&] {
      const Shape shape{s.batch, s.cells};
      return LstmState{stream.allocate(shape), stream.allocate(shape)};
    };
    std::vector<Piece> pieces;
    for (const auto& [first, count] : {std::pair{std::int64_t{0}, cut}, {cut, s.length - cut}}) {
      Piece p;
      p.sizes = {s.batch, count, s.inputs, s.cells};
      p.x = part(layer.x, first, count);
      p.dy = part(layer.dy, first, count);
      p.y = stream.allocate(p.dy.shape());
      p.gates = stream.allocate({count, s.batch, 4 * s.cells});
      p.cells = stream.allocate({count, s.batch, s.cells});
      p.dgates = stream.allocate(p.gates.shape());
      p.dx = stream.allocate(p.x.shape());
      p.before = pieces.empty() ? LstmState{} : pieces.front().after;
      p.after = state();
      p.dbefore = pieces.empty() ? LstmState{} : state();
      lstm_forward(stream,
                   {.x = p.x,
                    .w_input = layer.w_input,
                    .w_hidden = layer.w_hidden,
                    .bias = layer.bias,
                    .y = p.y,
                    .gates = p.gates,
                    .cells = p.cells,
                    .before = p.before,
                    .after = p.after});
      check_close("y", to_host(p.y), to_host(part(whole.y, first, count)), {1e-6, 1e-6});
      pieces.push_back(p);
    }
    const auto back = [&](const Piece& p, const LstmState& dafter) {
      lstm_input_gradient(stream,
                          {.w_input = layer.w_input,
                           .w_hidden = layer.w_hidden,
                           .gates = p.gates,
                           .cells = p.cells,
                           .dy = p.dy,
                           .dgates = p.dgates,
                           .dx = p.dx,
                           .outside = {p.before, dafter, p.dbefore}});
    };
    back(pieces[1], {});
    back(pieces[0], pieces[1].dbefore);
    check_close("dx", to_host(pieces[0].dx), to_host(part(whole.dx, 0, cut)), tolerance(s));
    const Shape shapes[] = {layer.w_input.shape(), layer.w_hidden.shape(), layer.bias.shape()};
    const auto gradients = [&](auto fill_in) {
      std::vector<Tensor> all;
      for (const Shape& shape : shapes) {
        all.push_back(stream.allocate(shape));
        fill(stream, all.back(), NAN);
      }
      fill_in(all);
      return all;
    };
    const auto of_piece = [&](const Piece& p, const std::vector<Tensor>& to, bool accumulate) {
      lstm_weight_gradient(stream,
                           {.x = p.x,
                            .y = p.y,
                            .dgates = p.dgates,
                            .dw_input = to[0],
                            .dw_hidden = to[1],
                            .dbias = to[2],
                            .accumulate = accumulate,
                            .hidden_before = p.before.hidden});
    };
    const auto of_whole = gradients([&](const std::vector<Tensor>& to) {
      lstm_weight_gradient(stream,
                           {.x = layer.x,
                            .y = whole.y,
                            .dgates = whole.dgates,
                            .dw_input = to[0],
                            .dw_hidden = to[1],
                            .dbias = to[2],
                            .accumulate = false});
    });
    const auto of_both = gradients([&](const std::vector<Tensor>& to) {
      of_piece(pieces[1], to, false);
      of_piece(pieces[0], to, true);
    });
    for (std::size_t i = 0; i < of_whole.size(); ++i) {
      check_close("dw", to_host(of_both[i]), to_host(of_whole[i]), tolerance(s));
    }

    // Truncated: the state that the second piece begins with is a constant.
    const auto truncated =
        gradients([&](const std::vector<Tensor>& to) { of_piece(pieces[1], to, false); });
    const Piece& p = pieces[1];
    const Values x = to_host(p.x), dy = to_host(p.dy);
    const Values w_input = to_host(layer.w_input), w_hidden = to_host(layer.w_hidden);
    const Values bias = to_host(layer.bias);
    const Values h = to_host(p.before.hidden), c = to_host(p.before.cell);
    const auto loss = [&](const Values& wi,
                          const Values& wh,
                          const Values& of_bias,
                          const Values& of_h,
                          const Values& of_c) {
      return dot(dy, lstm(p.sizes, x, wi, wh, of_bias, of_h, of_c));
    };
    check_close(
        "dw_input",
        to_host(truncated[0]),
        differences(w_input, [&](const Values& v) { return loss(v, w_hidden, bias, h, c); }),
        tolerance(s));
    check_close(
        "dw_hidden",
        to_host(truncated[1]),
        differences(w_hidden, [&](const Values& v) { return loss(w_input, v, bias, h, c); }),
        tolerance(s));
    check_close(
        "dh",
        to_host(p.dbefore.hidden),
        differences(h, [&](const Values& v) { return loss(w_input, w_hidden, bias, v, c); }),
        tolerance(s));
    check_close(
        "dc",
        to_host(p.dbefore.cell),
        differences(c, [&](const Values& v) { return loss(w_input, w_hidden, bias, h, v); }),
        tolerance(s));
  }
}

TEST_CASE("lstm_input_gradient leaves dgates alike where dx is not wanted", "[kernels]") {
  Stream stream{Device{}};
  const Lstm s{2, 5, 3, 9};
  const Layer layer(stream, s);
  const Outcome r = run(stream, s, layer);
  const Tensor dgates = stream.allocate(r.dgates.shape());
  lstm_input_gradient(stream,
                      {.w_input = layer.w_input,
                       .w_hidden = layer.w_hidden,
                       .gates = r.gates,
                       .cells = r.cells,
                       .dy = layer.dy,
                       .dgates = dgates,
                       .dx = Tensor()});
  CHECK(to_host(dgates) == to_host(r.dgates));
}

TEST_CASE("lstm saturates without overflow and hands a NaN on", "[kernels]") {
  Stream stream{Device{}};
  const Lstm s{1, 3, 2, 9};
  Layer layer(stream, s);
  scale(stream, layer.x, 1e4f);
  const Outcome large = run(stream, s, layer);
  check_close("y",
              to_host(large.y),
              lstm(s,
                   to_host(layer.x),
                   to_host(layer.w_input),
                   to_host(layer.w_hidden),
                   to_host(layer.bias)),
              {1e-5, 1e-5});
  for (const double value : to_host(large.dgates)) {
    REQUIRE(std::isfinite(value));
  }
  fill(stream, layer.x.view(2, {1}), NAN);  // step 1
  const Values y = to_host(run(stream, s, layer).y);
  CHECK(std::isfinite(y[0]));
  CHECK(std::isnan(y[9]));
  CHECK(std::isnan(y[18]));
}

TEST_CASE("lstm takes no memory from the system once it has run", "[kernels]") {
  Stream stream{Device{}};
  const Lstm s{2, 4, 6, 5};
  const Layer layer(stream, s);
  const auto once = [&] {
    const Outcome r = run(stream, s, layer);
    const Tensor dw_input = stream.allocate(layer.w_input.shape());
    const Tensor dw_hidden = stream.allocate(layer.w_hidden.shape());
    const Tensor dbias = stream.allocate(layer.bias.shape());
    lstm_weight_gradient(stream,
                         {.x = layer.x,
                          .y = r.y,
                          .dgates = r.dgates,
                          .dw_input = dw_input,
                          .dw_hidden = dw_hidden,
                          .dbias = dbias,
                          .accumulate = false});
  };
  once();
  const std::uint64_t before = BufferPool::of(Device{}).statistics().fresh;
  once();
  CHECK(BufferPool::of(Device{}).statistics().fresh == before);
}

TEST_CASE("lstm refuses what does not fit, by name", "[kernels]") {
  Stream stream{Device{}};
  const Lstm s{2, 3, 4, 5};
  const Layer layer(stream, s);
  const Outcome r = run(stream, s, layer);
  CHECK_THROWS_WITH(lstm_forward(stream,
                                 {.x = layer.x,
                                  .w_input = layer.w_hidden,
                                  .w_hidden = layer.w_hidden,
                                  .bias = layer.bias,
                                  .y = r.y,
                                  .gates = r.gates,
                                  .cells = r.cells}),
                    says("[lstm_forward] w_input is (20, 5), not (20, 4)"));
  CHECK_THROWS_WITH(lstm_forward(stream,
                                 {.x = layer.x,
                                  .w_input = layer.w_input,
                                  .w_hidden = layer.w_hidden,
                                  .bias = layer.bias,
                                  .y = r.y,
                                  .gates = r.y,
                                  .cells = r.cells}),
                    says("[lstm_forward] gates is (2, 3, 5), not (3, 2, 20)"));
  CHECK_THROWS_WITH(lstm_input_gradient(stream,
                                        {.w_input = layer.w_input,
                                         .w_hidden = layer.w_hidden,
                                         .gates = r.gates,
                                         .cells = r.cells,
                                         .dy = layer.dy,
                                         .dgates = r.dgates,
                                         .dx = r.y}),
                    says("[lstm_input_gradient] dx is (2, 3, 5), not (2, 3, 4)"));
}

}  // namespace lstm_test
