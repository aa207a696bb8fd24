#include "kernels/device.hpp"

#include "tests/support/catch.hpp"

using namespace troupe;

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
