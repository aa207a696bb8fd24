// The mean of vectors on several GPUs, by NCCL. Skipped where there are fewer than two.
#include "kernels/group_mean.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace group_mean_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<Device> all_gpus() {
  std::vector<Device> gpus;
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind == DeviceKind::cuda && check_available(info.device)) {
      gpus.push_back(info.device);
    }
  }
  return gpus;
}

/// By rank and slice: the mean in double, and how large its terms are.
void check_means(const std::vector<std::vector<Tensor>>& parts,
                 const std::vector<std::vector<Tensor>>& means,
                 const std::vector<Device>& gpus) {
  REQUIRE(means.size() == parts.size());
  const auto ranks = static_cast<double>(parts.size());
  for (std::size_t s = 0; s < parts.front().size(); ++s) {
    std::vector<std::vector<double>> of_rank;
    std::vector<std::vector<double>> got;
    for (std::size_t r = 0; r < parts.size(); ++r) {
      REQUIRE(means[r].size() == parts[r].size());
      CHECK(means[r][s].device() == gpus[r]);
      CHECK(means[r][s].shape() == parts[r][s].shape());
      of_rank.push_back(to_host(parts[r][s]));
      got.push_back(to_host(means[r][s]));
      CHECK(got.back() == got.front());  // the same bits at all ranks
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.front().size(); ++i) {
      double sum = 0;
      double size = 0;
      for (const std::vector<double>& values : of_rank) {
        sum += values[i];
        size += std::abs(values[i]);
      }
      // As many roundings as there are additions, and one of the product.
      wrong += std::abs(got.front()[i] - sum / ranks) > ranks * 6e-8 * size / ranks * 2 ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

std::vector<std::vector<Tensor>> random_parts(std::vector<std::unique_ptr<Stream>>& streams,
                                              const std::vector<std::int64_t>& sizes) {
  std::vector<std::vector<Tensor>> parts;
  for (std::size_t r = 0; r < streams.size(); ++r) {
    std::vector<Tensor>& of_rank = parts.emplace_back();
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      of_rank.push_back(normal_tensor(*streams[r], 100 * r + s, {sizes[s]}));
      of_rank.back().set_ready(streams[r]->record());
    }
  }
  return parts;
}

}  // namespace

TEST_CASE("all GPUs get the mean, in the same bits, twice", "[gpu]") {
  const std::vector<Device> gpus = all_gpus();
  if (gpus.size() < 2 || nccl_version().empty()) {
    return skip("fewer than two GPUs, or no NCCL");
  }
  for (std::size_t ranks = 2; ranks <= gpus.size(); ++ranks) {
    const std::vector<Device> group(gpus.begin(),
                                    gpus.begin() + static_cast<std::ptrdiff_t>(ranks));
    std::vector<std::unique_ptr<Stream>> streams;
    for (const Device device : group) {
      streams.push_back(std::make_unique<Stream>(device));
    }
    const auto parts = random_parts(streams, {1, 7, 0, 1000, 1'000'003});
    const auto means = group_mean(*streams.front(), all_here(group), parts);
    check_means(parts, means, group);
    const auto again = group_mean(*streams.back(), all_here(group), parts);
    for (std::size_t s = 0; s < parts.front().size(); ++s) {
      CHECK(to_host(again.front()[s]) == to_host(means.front()[s]));
    }
  }
}

// As the chunks of a pipeline do, whose shards are on threads of their own.
TEST_CASE("groups that share GPUs are asked for from several threads at once", "[gpu]") {
  const std::vector<Device> gpus = all_gpus();
  if (gpus.size() < 2 || nccl_version().empty()) {
    return skip("fewer than two GPUs, or no NCCL");
  }
  const std::vector<Device> forward{gpus[0], gpus[1]};
  const std::vector<Device> backward{gpus[1], gpus[0]};

  struct Asked {
    std::vector<std::vector<Tensor>> parts;
    std::vector<std::vector<Tensor>> means;
  };

  const auto ask = [](const std::vector<Device>& group, std::vector<Asked>& all) {
    std::vector<std::unique_ptr<Stream>> streams;
    for (const Device device : group) {
      streams.push_back(std::make_unique<Stream>(device));
    }
    for (int round = 0; round < 50; ++round) {
      Asked one{random_parts(streams, {300'007}), {}};
      one.means = group_mean(*streams.front(), all_here(group), one.parts);
      for (std::size_t r = 0; r < group.size();
           ++r) {  // used on every GPU's own stream, as a step does
        one.means[r].front().set_ready(streams.front()->record());
        scale(*streams[r], one.means[r].front(), 1);
      }
      if (round % 10 == 0) {
        all.push_back(std::move(one));
      }
    }
  };
  std::vector<Asked> by_other;
  std::vector<Asked> by_this;
  std::thread other([&] { ask(backward, by_other); });
  ask(forward, by_this);
  other.join();
  for (const Asked& one : by_this) {
    check_means(one.parts, one.means, forward);
  }
  for (const Asked& one : by_other) {
    check_means(one.parts, one.means, backward);
  }
}

// Each of several threads is to NCCL what a process would be.
TEST_CASE("ranks that each process asks for by itself get the bits of one process", "[gpu]") {
  const std::vector<Device> gpus = all_gpus();
  if (gpus.size() < 2 || nccl_version().empty()) {
    return skip("fewer than two GPUs, or no NCCL");
  }
  const std::vector<Device> group{gpus[0], gpus[1]};
  std::vector<std::unique_ptr<Stream>> streams;
  for (const Device device : group) {
    streams.push_back(std::make_unique<Stream>(device));
  }
  const std::string id = make_group_id();
  REQUIRE(id.size() == kGroupIdBytes);
  for (int round = 0; round < 3; ++round) {
    const auto parts = random_parts(streams, {1, 7, 0, 1000, 100'003});
    std::vector<std::vector<Tensor>> means(2);
    const auto ask = [&](std::size_t r) {
      const GroupRanks here{
          .ranks = {static_cast<std::int32_t>(r)}, .devices = {group[r]}, .of = 2, .id = id};
      means[r] = group_mean(*streams[r], here, {parts[r]}).front();
    };
    std::thread other([&] { ask(1); });
    ask(0);
    other.join();
    check_means(parts, means, group);
    const auto in_one = group_mean(*streams.front(), all_here(group), parts);
    for (std::size_t s = 0; s < parts.front().size(); ++s) {
      CHECK(to_host(means[0][s]) == to_host(in_one[0][s]));
    }
  }
  end_group(id);
}

TEST_CASE("a rank whose others never come waits until the group is ended, and no longer", "[gpu]") {
  const std::vector<Device> gpus = all_gpus();
  if (gpus.size() < 2 || nccl_version().empty()) {
    return skip("fewer than two GPUs, or no NCCL");
  }
  for (const bool meet : {false, true}) {
    INFO(meet);
    const std::string id = make_group_id();
    std::vector<std::unique_ptr<Stream>> streams;
    for (const Device device : {gpus[0], gpus[1]}) {
      streams.push_back(std::make_unique<Stream>(device));
    }
    const auto parts = random_parts(streams, {1000});
    const auto ask = [&](std::size_t r) {
      const GroupRanks here{
          .ranks = {static_cast<std::int32_t>(r)}, .devices = {gpus[r]}, .of = 2, .id = id};
      return group_mean(*streams[r], here, {parts[r]});
    };
    if (meet) {
      std::thread other([&] { ask(1); });
      ask(0);
      other.join();
    }
    std::string why;
    std::thread waits([&] {
      try {
        ask(0);
      } catch (const std::exception& error) {
        why = error.what();
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    end_group(id);
    waits.join();
    CHECK_THAT(why, Catch::Contains("was ended"));
    CHECK_THROWS_WITH(ask(1), Catch::Contains("after its end"));
    streams.front()->synchronize();  // nothing is left on the GPU that waits
  }
}

TEST_CASE("a name of another length, or none, is refused", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream stream(kGpu);
  const Tensor part = stream.allocate({3});
  for (const std::string& id : {std::string(), std::string(127, 'x'), std::string(129, 'x')}) {
    CHECK_THROWS_WITH(
        group_mean(stream, {.ranks = {0}, .devices = {kGpu}, .of = 2, .id = id}, {{part}}),
        Catch::Contains("needs a name of 128 bytes"));
  }
  CHECK_THROWS_WITH(
      group_mean(stream,
                 {.ranks = {2}, .devices = {kGpu}, .of = 2, .id = std::string(128, 'x')},
                 {{part}}),
      Catch::Contains("expected ranks of the group in their order"));
}

}  // namespace group_mean_test
