// Words over a control stream: as they were said, and memory for them as they come.
#include "runtime/cluster/control_stream.hpp"

#include "kernels/group_mean.hpp"
#include "runtime/cluster/node.hpp"
#include "tests/support/catch.hpp"
#include "wire.pb.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace control_stream_test {

using namespace troupe;

namespace {

/// Has bytes to be read, at most so many at once, and notes how many are asked for beyond those that have come.
class ComingBytes final : public ControlStream {
 public:
  ComingBytes(std::string bytes, std::size_t at_once)
      : bytes_(std::move(bytes)), at_once_(at_once) {}

  Passed read(std::span<char> into) override {
    ahead_ = std::max(ahead_, static_cast<double>(into.size()) / static_cast<double>(at_ + 4096));
    const std::size_t n = std::min({into.size(), at_once_, bytes_.size() - at_});
    std::memcpy(into.data(), bytes_.data() + at_, n);
    at_ += n;
    return {.bytes = n, .gone = n == 0};
  }

  Passed write(std::span<const char> /*bytes*/) override { return {.gone = true}; }

  void finish() override {}

  int descriptor() const override { return -1; }

  /// The most that was asked for, in shares of what had come and 4 KiB.
  double ahead() const { return ahead_; }

 private:
  std::string bytes_;
  std::size_t at_once_;
  std::size_t at_ = 0;
  double ahead_ = 0;
};

std::string framed(const std::string& bytes, std::uint32_t announced) {
  return std::string(reinterpret_cast<const char*>(&announced), sizeof announced) + bytes;
}

}  // namespace

TEST_CASE("a word of any size is read as it was said", "[cluster]") {
  for (const std::size_t size : {0, 1, 4095, 4096, 4097, 100'000, 5'000'000}) {
    for (const std::size_t at_once : {997, 10'000'000}) {
      proto::Join said;
      said.set_token(std::string(size, 'x'));
      const std::string bytes = said.SerializeAsString();
      ComingBytes stream(framed(bytes, static_cast<std::uint32_t>(bytes.size())), at_once);
      proto::Join heard;
      CAPTURE(size, at_once);
      REQUIRE(read_message(stream, heard) == Talk::done);
      CHECK(heard.SerializeAsString() == bytes);
      CHECK(stream.ahead() <= 1);
    }
  }
}

TEST_CASE("what a length announces takes no memory before it comes", "[cluster]") {
  for (const std::size_t size : {0, 10, 5000, 3'000'000}) {
    ComingBytes stream(framed(std::string(size, 'x'), 64 << 20), 1000);
    proto::Join heard;
    CAPTURE(size);
    CHECK(read_message(stream, heard) == Talk::gone);
    CHECK(stream.ahead() <= 1);
  }
}

TEST_CASE("names of groups of GPUs in an invitation are as long as NCCL's, or empty", "[cluster]") {
  const auto heard = [](const std::vector<std::string>& groups) {
    proto::Join said;
    said.set_processes(2);
    said.mutable_groups()->Assign(groups.begin(), groups.end());
    const std::string bytes = said.SerializeAsString();
    ComingBytes stream(framed(bytes, static_cast<std::uint32_t>(bytes.size())), 1000);
    return read_invitation(stream);
  };
  const std::string name(kGroupIdBytes, 'x');
  for (const std::vector<std::string>& groups :
       {std::vector<std::string>{}, {""}, {name}, {name, "", name}}) {
    const auto invitation = heard(groups);
    REQUIRE(invitation);
    CHECK(invitation->groups == groups);
  }
  for (const std::size_t size : {std::size_t{1}, kGroupIdBytes - 1, kGroupIdBytes + 1}) {
    CHECK_FALSE(heard({name, std::string(size, 'x')}));
  }
}

}  // namespace control_stream_test
