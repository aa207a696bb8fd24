#include "kernels/tensor.hpp"

#include "kernels/stream.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

namespace tensor_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("a view shares the buffer and sees its part", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = normal_tensor(stream, 1, {4, 6});
  CHECK(x.exclusive());
  const Tensor row = x.view(6, {6});
  CHECK_FALSE(x.exclusive());
  CHECK(row.span<float>()[0] == x.span<float>()[6]);
  const Tensor part = row.view(2, {2, 2});
  part.span<float>()[3] = 42;
  CHECK(x.span<float>()[11] == 42);
  CHECK(x.reshape({24}).span<float>()[11] == 42);
}

TEST_CASE("a view beyond the end is refused", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = stream.allocate({4, 6});
  CHECK_THROWS_WITH(x.view(20, {5}), says("view of (5) at 20 does not fit into (4, 6)"));
  CHECK_THROWS_AS(x.view(6, {6}).view(1, {6}), ContractError);
  CHECK_THROWS_AS(x.view(-1, {6}), ContractError);
  CHECK_THROWS_AS(Tensor().view(0, {}), ContractError);
}

TEST_CASE("a tensor gives its elements only as what they are", "[kernels]") {
  Stream stream{Device{}};
  CHECK_THROWS_AS(stream.allocate({3}).data<double>(), ContractError);
  CHECK_THROWS_AS(Tensor().data<float>(), ContractError);
  CHECK(size_bytes(DType::float64) == 8);
  CHECK(size_bytes(DType::bfloat16) == 2);
  CHECK(std::string(to_string(DType::int32)) == "int32");
}

TEST_CASE("shapes print and multiply", "[kernels]") {
  CHECK(concat(Shape{64, 128}) == "(64, 128)");
  CHECK(concat(Shape{}) == "()");
  CHECK(Shape{}.elements() == 1);
  CHECK(Shape{3, 0, 2}.elements() == 0);
  CHECK_THROWS_AS((Shape{1, 2, 3, 4, 5, 6}), ContractError);
  CHECK_THROWS_AS(Shape{-1}, ContractError);
}

}  // namespace tensor_test
