#include "kernels/loss.hpp"

#include "kernels/elementwise.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace loss_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("softmax_cross_entropy agrees with the formula in double", "[kernels]") {
  Stream stream{Device{}};
  const auto classes = GENERATE(1, 2, 10, 16, 31, 33, 65, 1100);
  const auto rows = GENERATE(1, 7, 128);
  const auto smoothing = GENERATE(0.0f, 0.1f);
  Tensor logits = normal_tensor(stream, 1, {rows, classes});
  scale(stream, logits, 5);
  const Tensor labels = random_labels(stream, 2, rows, classes);
  const Tensor gradient = stream.allocate(logits.shape());
  const Tensor result = stream.allocate({2}, DType::float64);
  const Loss expected = test::softmax_cross_entropy(
      to_host(logits), to_host(labels), classes, static_cast<double>(smoothing));
  troupe::softmax_cross_entropy(stream, logits, labels, gradient, result, smoothing);
  // exp is good to 2 units in the last place, relative to a sum that holds exp(0).
  check_close("result", to_host(result), {expected.sum, expected.right}, {1e-5, 1e-6});
  check_close("dlogits", to_host(gradient), expected.gradient, {5e-7 / double(rows), 1e-6});

  const Values same = to_host(result);
  troupe::softmax_cross_entropy(stream, logits, labels, Tensor(), result, smoothing);
  CHECK(to_host(result) == same);
  troupe::softmax_cross_entropy(stream, logits, labels, logits, result, smoothing);
  CHECK(to_host(result) == same);
  CHECK(to_host(logits) == to_host(gradient));
}

TEST_CASE("parts that share the classes add up to softmax_cross_entropy", "[kernels]") {
  Stream stream{Device{}};
  const auto classes = GENERATE(3, 10, 65);
  const auto smoothing = GENERATE(0.0f, 0.1f);
  const std::int64_t rows = 9;
  const Tensor logits = normal_tensor(stream, 1, {rows, classes});
  scale(stream, logits, 5);
  copy(stream,
       logits.view(0, {1}),
       logits.view(classes - 1, {1}));  // two as great: the first is right
  const Tensor labels = random_labels(stream, 2, rows, classes);
  const Tensor whole = stream.allocate(logits.shape());
  const Tensor result = stream.allocate({2}, DType::float64);
  troupe::softmax_cross_entropy(stream, logits, labels, whole, result, smoothing);
  for (const std::int64_t parts : {1, 2, 3}) {
    const Tensor statistics = stream.allocate({rows, 2 * parts});
    std::vector<Tensor> own;
    for (std::int64_t t = 0; t < parts; ++t) {
      const std::int64_t first = t * classes / parts;
      const std::int64_t count = (t + 1) * classes / parts - first;
      own.push_back(stream.allocate({rows, count}));
      copy_columns(stream, logits, first, own.back(), 0, count);
      const Tensor two = stream.allocate({rows, 2});
      softmax_statistics(stream, own.back(), two);
      copy_columns(stream, two, 0, statistics, 2 * t, 2);
    }
    Values sum{0, 0};
    const Tensor gradient = stream.allocate(logits.shape());
    for (std::int64_t t = 0; t < parts; ++t) {
      const Tensor& x = own[static_cast<std::size_t>(t)];
      const Tensor of_part = stream.allocate({2}, DType::float64);
      const Tensor dx = stream.allocate(x.shape());
      const std::int64_t first = t * classes / parts;
      parted_cross_entropy(stream,
                           {.logits = x,
                            .statistics = statistics,
                            .labels = labels,
                            .dlogits = dx,
                            .result = of_part,
                            .part = t,
                            .first = first,
                            .classes = classes,
                            .smoothing = smoothing});
      sum[0] += to_host(of_part)[0];
      sum[1] += to_host(of_part)[1];
      copy_columns(stream, dx, 0, gradient, first, x.shape()[1]);
    }
    INFO("parts " << parts);
    check_close("result", sum, to_host(result), {1e-5, 1e-6});
    CHECK(sum[1] == to_host(result)[1]);
    check_close("dlogits", to_host(gradient), to_host(whole), {1e-7, 2e-6});
  }
}

TEST_CASE("softmax_cross_entropy survives large logits", "[kernels]") {
  Stream stream{Device{}};
  const std::vector<float> x{1000, 0, -1000, 999, -1e30f, 1e30f};
  const std::vector<std::int32_t> label{2, 1};
  const Tensor logits = from_host(stream, std::span<const float>(x), {2, 3});
  const Tensor gradient = stream.allocate({2, 3});
  const Tensor result = stream.allocate({2}, DType::float64);
  troupe::softmax_cross_entropy(stream,
                                logits,
                                from_host(stream, std::span<const std::int32_t>(label), {2}),
                                gradient,
                                result);
  CHECK(to_host(result)[0] == Approx(2000 + 2e30));
  for (const double value : to_host(gradient)) {
    CHECK(std::isfinite(value));
  }
}

// PyTorch 2: F.cross_entropy(tensor([[1., 2, 3]]), tensor([2]), label_smoothing=0.3), by hand:
// log(e + e^2 + e^3) = 3.40760596; 0.7 * (3.40760596 - 3) + 0.3 * (3.40760596 - 2).
TEST_CASE("label smoothing mixes the label with all classes", "[kernels]") {
  Stream stream{Device{}};
  const std::vector<float> x{1, 2, 3};
  const std::vector<std::int32_t> label{2};
  const Tensor result = stream.allocate({2}, DType::float64);
  const auto run = [&](float smoothing) {
    troupe::softmax_cross_entropy(stream,
                                  from_host(stream, std::span<const float>(x), {1, 3}),
                                  from_host(stream, std::span<const std::int32_t>(label), {1}),
                                  Tensor(),
                                  result,
                                  smoothing);
    return to_host(result)[0];
  };
  CHECK(run(0.3f) == Approx(0.70760596));
  CHECK(run(0) == Approx(0.40760596));
  CHECK_THROWS_WITH(run(1), says("smoothing is 1, not in [0, 1)"));
}

TEST_CASE("softmax_cross_entropy predicts the first of the largest logits", "[kernels]") {
  Stream stream{Device{}};
  const auto right = [&](std::vector<float> x, std::int32_t label) {
    const std::int64_t classes = static_cast<std::int64_t>(x.size());
    const std::vector<std::int32_t> labels{label};
    const Tensor result = stream.allocate({2}, DType::float64);
    troupe::softmax_cross_entropy(stream,
                                  from_host(stream, std::span<const float>(x), {1, classes}),
                                  from_host(stream, std::span<const std::int32_t>(labels), {1}),
                                  Tensor(),
                                  result);
    return to_host(result)[1] == 1.0;
  };
  CHECK(right({1, 2, 2, 0}, 1));
  CHECK_FALSE(right({1, 2, 2, 0}, 2));
  CHECK_FALSE(right({1, 2, 2, 0}, 0));
  CHECK_FALSE(right({NAN, 2, 2, 0}, 0));
  CHECK(right({3}, 0));
}

TEST_CASE("a NaN logit makes the loss NaN", "[kernels]") {
  Stream stream{Device{}};
  std::vector<float> x = normal_floats(1, 66);
  x[40] = NAN;
  const std::vector<std::int32_t> labels{0, 1};
  const Tensor result = stream.allocate({2}, DType::float64);
  troupe::softmax_cross_entropy(stream,
                                from_host(stream, std::span<const float>(x), {2, 33}),
                                from_host(stream, std::span<const std::int32_t>(labels), {2}),
                                Tensor(),
                                result);
  CHECK(std::isnan(to_host(result)[0]));
}

TEST_CASE("softmax_cross_entropy names a label out of range", "[kernels]") {
  Stream stream{Device{}};
  const std::vector<std::int32_t> labels{0, 3};
  const Tensor logits = stream.allocate({2, 3});
  fill(stream, logits, 0);
  CHECK_THROWS_WITH(
      troupe::softmax_cross_entropy(stream,
                                    logits,
                                    from_host(stream, std::span<const std::int32_t>(labels), {2}),
                                    Tensor(),
                                    stream.allocate({2}, DType::float64)),
      says("label 3 of row 1 is not in [0, 3)"));
}

TEST_CASE("squared_error agrees with the formula in double", "[kernels]") {
  Stream stream{Device{}};
  const auto columns = GENERATE(1, 10, 31, 33);
  const auto rows = GENERATE(1, 7, 64);
  const Tensor y = normal_tensor(stream, 1, {rows, columns});
  const Tensor target = normal_tensor(stream, 2, {rows, columns});
  const Tensor gradient = stream.allocate(y.shape());
  const Tensor result = stream.allocate({2}, DType::float64);
  const Loss expected = test::squared_error(to_host(y), to_host(target), columns);
  troupe::squared_error(stream, y, target, gradient, result);
  check_close("result", to_host(result), {expected.sum, 0}, {1e-12, 1e-12});
  check_close("dy", to_host(gradient), expected.gradient, {1e-7, 1e-6});
}

}  // namespace loss_test
