#include "kernels/update.hpp"

#include "kernels/functors/update.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace update_test {

using namespace troupe;
using namespace troupe::test;

namespace {

UpdateScalars scalars() {
  UpdateScalars s;
  s.gradient_scale = 0.5f;
  s.rate = 0.1f;
  s.decay = 0.01f;
  s.gamma = 0.9f;
  s.beta2 = 0.99f;
  s.epsilon = 1e-6f;
  s.a = 0.7f;
  s.b = 2.5f;
  s.m_scale = 1.5f;
  s.g_scale = 0.4f;
  s.v_scale = 3.0f;
  return s;
}

struct Fields {
  Tensor w, g, m, v, displacement;

  Fields(Stream& stream, UpdateKernel kernel, std::int64_t n)
      : w(normal_tensor(stream, 1, {n})),
        g(normal_tensor(stream, 2, {n})),
        displacement(normal_tensor(stream, 5, {n})) {
    if (moments(kernel) >= 1) {
      m = moment_tensor(stream, kernel, 1, {n});
    }
    if (moments(kernel) >= 2) {
      v = moment_tensor(stream, kernel, 2, {n});
    }
  }
};

// A step is a dozen float operations on numbers near one.
constexpr Tolerance kTolerance{2e-6, 2e-6};

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "a step agrees with its formula in double, predictions and displacement too",
    "[kernels]",
    UpdateKernels) {
  constexpr UpdateKernel kernel = TestType::kernel;
  Stream stream{Device{}};
  const auto n = GENERATE(0, 1, 31, 33, 1024, 1025, 4099);
  const auto in_place = GENERATE(false, true);
  const auto size = static_cast<std::size_t>(n);
  const Fields f(stream, kernel, n);
  const UpdateScalars s = scalars();
  const double decay = 0.25;

  Values w_new(size), m(size), v(size), displacement(size), ahead(size), back(size), along(size);
  const Values w0 = to_host(f.w);
  const Values g0 = to_host(f.g);
  const Values m0 = f.m ? to_host(f.m) : Values(size);
  const Values v0 = f.v ? to_host(f.v) : Values(size);
  const Values d0 = to_host(f.displacement);
  for (std::size_t i = 0; i < size; ++i) {
    const Step step = test::update(kernel, s, w0[i], g0[i], m0[i], v0[i]);
    w_new[i] = step.w;
    m[i] = step.m;
    v[i] = step.v;
    displacement[i] = decay * d0[i] + (1 - decay) * (step.w - w0[i]);
    ahead[i] = step.w - 0.3 * step.direction;
    back[i] = step.w + 0.2 * step.direction;
    along[i] = step.w - 2.0 * displacement[i];
  }

  UpdateArguments arguments;
  arguments.kernel = kernel;
  arguments.scalars = s;
  arguments.w = f.w;
  arguments.g = f.g;
  arguments.w_new = in_place ? f.w : stream.allocate({n});
  arguments.m = f.m;
  arguments.v = f.v;
  arguments.displacement = f.displacement;
  arguments.displacement_decay = static_cast<float>(decay);
  for (const auto& [factor, displaced] : {std::pair{0.3f, false}, {-0.2f, false}, {2.0f, true}}) {
    arguments.predictions.push_back({factor, displaced, stream.allocate({n})});
  }
  troupe::update(stream, arguments);

  check_close("w_new", to_host(arguments.w_new), w_new, kTolerance);
  if (f.m) {
    check_close("m", to_host(f.m), m, kTolerance);
  }
  if (f.v) {
    check_close("v", to_host(f.v), v, kTolerance);
  }
  check_close("displacement", to_host(f.displacement), displacement, kTolerance);
  check_close("ahead", to_host(arguments.predictions[0].out), ahead, kTolerance);
  check_close("back", to_host(arguments.predictions[1].out), back, kTolerance);
  check_close("along", to_host(arguments.predictions[2].out), along, kTolerance);
  if (!in_place) {
    CHECK(to_host(f.w) == w0);
  }
}

// Weights must be bit-equal whatever the cut: however a parameter vector is divided among slices,
// and whatever else the pass writes, an element's new value is the same.
TEMPLATE_LIST_TEST_CASE("a step's bits do not depend on the cut nor on what else is wanted",
                        "[kernels]",
                        UpdateKernels) {
  constexpr UpdateKernel kernel = TestType::kernel;
  Stream stream{Device{}};
  const std::int64_t n = 2'111;
  const auto run = [&](std::int64_t piece, bool extras) {
    const Fields f(stream, kernel, n);
    for (std::int64_t begin = 0; begin < n; begin += piece) {
      const Shape shape{std::min(piece, n - begin)};
      const auto part = [&](const Tensor& x) {
        return x ? x.view(begin, shape) : Tensor();
      };
      UpdateArguments arguments;
      arguments.kernel = kernel;
      arguments.scalars = scalars();
      arguments.w = part(f.w);
      arguments.g = part(f.g);
      arguments.w_new = part(f.w);
      arguments.m = part(f.m);
      arguments.v = part(f.v);
      if (extras) {
        arguments.displacement = part(f.displacement);
        arguments.predictions.push_back({0.1f, false, stream.allocate(shape)});
      }
      troupe::update(stream, arguments);
    }
    return to_host(f.w);
  };
  const Values whole = run(n, false);
  CHECK(run(n, true) == whole);
  for (const std::int64_t piece : {1, 7, 16, 100, 1023}) {
    CHECK(run(piece, false) == whole);
  }
}

// The formulas of PyTorch's documentation, over several steps from nothing.
TEST_CASE("adagrad and rmsprop follow PyTorch's loops", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t n = 33;
  const double rate = 0.05, decay = 0.02, epsilon = 1e-4, alpha = 0.9;
  const auto kernel = GENERATE(UpdateKernel::adagrad, UpdateKernel::rmsprop);
  const auto momentum = GENERATE(0.0, 0.8);
  UpdateScalars s;
  s.rate = static_cast<float>(rate);
  s.decay = static_cast<float>(decay);
  s.gamma = static_cast<float>(momentum);
  s.beta2 = static_cast<float>(alpha);
  s.epsilon = static_cast<float>(epsilon);
  const Tensor w = normal_tensor(stream, 1, {n});
  const Tensor m = stream.allocate({n});
  const Tensor v = stream.allocate({n});
  fill(stream, m, 0);
  fill(stream, v, 0);
  Values expected = to_host(w);
  Values square(33), buffer(33);
  for (std::uint64_t step = 0; step < 4; ++step) {
    const Tensor g = normal_tensor(stream, 10 + step, {n});
    UpdateArguments arguments;
    arguments.kernel = kernel;
    arguments.scalars = s;
    arguments.w = w;
    arguments.g = g;
    arguments.w_new = w;
    arguments.m = m;
    arguments.v = kernel == UpdateKernel::rmsprop ? v : Tensor();
    troupe::update(stream, arguments);
    const Values gradient = to_host(g);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double grad = gradient[i] + decay * expected[i];
      if (kernel == UpdateKernel::adagrad) {
        square[i] += grad * grad;
        expected[i] -= rate * grad / (std::sqrt(square[i]) + epsilon);
      } else {
        square[i] = alpha * square[i] + (1 - alpha) * grad * grad;
        buffer[i] = momentum * buffer[i] + grad / (std::sqrt(square[i]) + epsilon);
        expected[i] -= rate * buffer[i];
      }
    }
  }
  // Four steps of a dozen roundings of numbers near one, each multiplied by the rate; and the
  // decayed gradient keeps some of them where it nearly vanishes.
  check_close("w", to_host(w), expected, {1e-5, 1e-6});
}

TEST_CASE("nesterov_direction is momentum and a look ahead", "[kernels]") {
  Stream stream{Device{}};
  const auto n = GENERATE(0, 1, 31, 1025);
  const Tensor g = normal_tensor(stream, 1, {n});
  const Tensor m = normal_tensor(stream, 2, {n});
  const Values g0 = to_host(g);
  const Values m0 = to_host(m);
  UpdateScalars s;
  s.gradient_scale = 0.5f;
  s.gamma = 0.75f;
  nesterov_direction(stream, s, g, m, g);
  Values velocity, direction;
  for (std::size_t i = 0; i < g0.size(); ++i) {
    velocity.push_back(0.75 * m0[i] + 0.5 * g0[i]);
    direction.push_back(0.5 * g0[i] + 0.75 * velocity[i]);
  }
  check_close("m", to_host(m), velocity, kTolerance);
  check_close("out", to_host(g), direction, kTolerance);
}

TEST_CASE("normalize makes the norm one, and leaves zero and NaN", "[kernels]") {
  Stream stream{Device{}};
  const auto n = GENERATE(1, 31, 33, 4099);
  for (const float size : {1.0f, 1e-4f, 1e15f}) {
    const Tensor x = normal_tensor(stream, 1, {n});
    scale(stream, x, size);
    Values expected = to_host(x);
    double squares = 0;
    for (const double value : expected) {
      squares += value * value;
    }
    for (double& value : expected) {
      value /= std::sqrt(squares);
    }
    normalize(stream, x, x);
    check_close("x", to_host(x), expected, {0, 2e-7});  // two roundings
  }
  const Tensor zero = stream.allocate({n});
  fill(stream, zero, 0);
  normalize(stream, zero, zero);
  CHECK(to_host(zero) == Values(static_cast<std::size_t>(n)));
  zero.span<float>().back() = NAN;
  normalize(stream, zero, zero);
  CHECK(std::isnan(to_host(zero).front()));
}

TEST_CASE("momentum's step is bit-equal to the formula in float", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t n = 53;
  const Fields f(stream, UpdateKernel::momentum, n);
  std::vector<float> expected;
  UpdateScalars s;
  s.rate = 0.1f;
  s.gamma = 0.9f;
  for (std::size_t i = 0; i < 53; ++i) {
    const float velocity = s.gamma * f.m.span<float>()[i] +
                           (1.0f * f.g.span<float>()[i] + 0.0f * f.w.span<float>()[i]);
    expected.push_back(f.w.span<float>()[i] - s.rate * velocity);
  }
  UpdateArguments arguments;
  arguments.kernel = UpdateKernel::momentum;
  arguments.scalars = s;
  arguments.w = f.w;
  arguments.g = f.g;
  arguments.w_new = f.w;
  arguments.m = f.m;
  troupe::update(stream, arguments);
  CHECK(to_host(f.w) == Values(expected.begin(), expected.end()));
}

TEST_CASE("update refuses moments that do not fit the kernel", "[kernels]") {
  Stream stream{Device{}};
  UpdateArguments arguments;
  arguments.kernel = UpdateKernel::adam;
  arguments.w = stream.allocate({5});
  arguments.g = stream.allocate({5});
  arguments.w_new = arguments.w;
  arguments.m = stream.allocate({5});
  CHECK_THROWS_WITH(troupe::update(stream, arguments),
                    says("[update] adam keeps 2 moments; m is given, v is empty"));
  arguments.v = stream.allocate({4});
  CHECK_THROWS_WITH(troupe::update(stream, arguments), says("[update] v is (4), not (5)"));
  arguments.v = stream.allocate({5});
  arguments.predictions.push_back({1.0f, true, stream.allocate({5})});
  CHECK_THROWS_WITH(troupe::update(stream, arguments), says("no displacement"));
}

TEST_CASE("every kernel has a functor, a name and its number of moments", "[kernels]") {
  CHECK(std::string(to_string(UpdateKernel::spike_compensation)) == "spike_compensation");
  CHECK(moments(UpdateKernel::sgd) == 0);
  CHECK(moments(UpdateKernel::nesterov) == 1);
  CHECK(moments(UpdateKernel::nadamw) == 2);
  CHECK(moments(UpdateKernel::adagrad) == 1);
  CHECK(moments(UpdateKernel::rmsprop) == 2);
  CHECK(moments(UpdateKernel::lion) == 1);
  CHECK(moments(UpdateKernel::muon) == 0);
}

}  // namespace update_test
