#include "kernels/device.hpp"

#include "kernels/group_mean.hpp"
#include "kernels/stream.hpp"
#include "tests/support/catch.hpp"

#include <cctype>

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
  CHECK_THAT(tf32.error().message, says("tf32 is a format of GPUs; on cpu use fp32"));
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

TEST_CASE("what cannot be a group of GPUs is refused with the reason", "[kernels]") {
  const Device cpu;
  const Device first{DeviceKind::cuda, 0};
  const Device far{DeviceKind::cuda, 77};
  for (const auto& devices : {std::vector<Device>{},
                              std::vector<Device>{first},
                              std::vector<Device>{cpu, cpu},
                              std::vector<Device>{cpu, first},
                              std::vector<Device>{first, first}}) {
    const auto able = check_group(devices);
    REQUIRE_FALSE(able);
    CHECK(able.error().kind == ErrorKind::usage);
    CHECK_THAT(able.error().message, Catch::Contains("two or more GPUs, each named once"));
  }
  REQUIRE_FALSE(check_group({first, far}));  // one of them at least is not there
  Stream stream(cpu);
  const Tensor part = stream.allocate({3});
  CHECK_THROWS_WITH(group_mean(stream, all_here({cpu, cpu}), {{part}, {part}}),
                    Catch::Contains("expected two or more GPUs, each named once"));
}

TEST_CASE("NCCL's version is told, where it is there", "[kernels]") {
  const std::string version = nccl_version();
  CHECK((version.empty() || std::isdigit(static_cast<unsigned char>(version.front())) != 0));
  INFO(version);
  CHECK((version.empty() || version.find('.') != std::string::npos));
}

}  // namespace device_test
