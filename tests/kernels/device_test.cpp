#include "kernels/device.hpp"

#include "kernels/stream.hpp"
#include "tests/support/catch.hpp"

namespace device_test {

using namespace troupe;
using troupe::test::says;

TEST_CASE("device names are read and written", "[kernels]") {
  for (const char* name : {"cpu", "cuda:0", "cuda:3"}) {
    CHECK(to_string(*parse_device(name)) == name);
  }
  CHECK(*parse_device("cuda") == Device{DeviceKind::cuda, 0});
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CPU"}) {
    const Result<Device> device = parse_device(name);
    CHECK_FALSE(device);
    CHECK(device.error().kind == ErrorKind::usage);
  }
}

TEST_CASE("the CPU is always there, first in the list", "[kernels]") {
  CHECK(check_available(Device{}));
  const std::vector<DeviceInfo> all = devices();
  REQUIRE_FALSE(all.empty());
  CHECK(all[0].device == Device{});
  CHECK_FALSE(all[0].name.empty());
  CHECK(all[0].memory_bytes > 0);
}

TEST_CASE("a GPU that is not there is an error with a sentence", "[kernels]") {
  const Result<void> available = check_available(Device{DeviceKind::cuda, 1000});
  REQUIRE_FALSE(available);
  CHECK(available.error().kind == ErrorKind::usage);
  CHECK_FALSE(available.error().message.empty());
}

TEST_CASE("what a CPU cannot multiply in is an error with what would be right", "[kernels]") {
  CHECK(check_precision(Device{}, Precision::fp32));
  const Result<void> tf32 = check_precision(Device{}, Precision::tf32);
  REQUIRE_FALSE(tf32);
  CHECK(tf32.error().kind == ErrorKind::usage);
  CHECK_THAT(tf32.error().message, says("tf32 is a format of GPUs; right on cpu is fp32"));
  const std::vector<Precision> able = precisions(Device{});
  REQUIRE_FALSE(able.empty());
  CHECK(able.front() == Precision::fp32);
  const Result<void> bf16 = check_precision(Device{}, Precision::bf16);
  CHECK(static_cast<bool>(bf16) == (able.back() == Precision::bf16));
  if (!bf16) {
    CHECK_THAT(bf16.error().message, says("bf16 on cpu needs AVX512_BF16 or AMX"));
    CHECK_THROWS_WITH(Stream(Device{}, Precision::bf16), says("[Stream] bf16 on cpu needs"));
  }
  CHECK_THROWS_WITH(Stream(Device{}, Precision::tf32), says("[Stream] tf32"));
}

}  // namespace device_test
