// Messages of every codec, as the other end of a link reads them.
#include "runtime/schemes/codecs/codec.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <array>
#include <cstring>

namespace troupe::fuzz {
namespace {

// Numbers of the slice: a matrix and a vector.
constexpr std::int64_t kRows = 12;
constexpr std::int64_t kColumns = 10;
constexpr std::int64_t kNumbers = kRows * kColumns + 7;

constexpr std::array<const char*, 17> kCodecs{"fp16",
                                              "bf16",
                                              "int8_block.block=16",
                                              "int4_block.block=16",
                                              "e3m0.block=16",
                                              "one_bit.per=column",
                                              "strom.coding=words",
                                              "strom.coding=golomb",
                                              "top_k.coding=words",
                                              "top_k.coding=golomb",
                                              "random_k.density=0.1",
                                              "qsgd.coding=elias",
                                              "qsgd.coding=fixed",
                                              "qsgd.coding=recursive",
                                              "terngrad.clip=0",
                                              "powersgd.rank=2",
                                              "sign_vote.momentum=0"};

std::shared_ptr<const Codec> made(std::size_t which) {
  proto::Experiment e;
  const std::string chosen = kCodecs.at(which);
  const bool plain = chosen.find('.') == chosen.npos;
  (void)set_value(e, (plain ? "replicas.codec.up=" : "replicas.codec.up.") + chosen);
  (void)resolve(e);
  return make_codec(
      {.chosen = e.replicas().codec().up(),
       .parts = {{.name = "w", .offset = 0, .shape = {kRows, kColumns}, .matrix = true},
                 {.name = "b", .offset = kRows * kColumns, .shape = {7}}},
       .elements = kNumbers,
       .replicas = 2,
       .feedback = true});
}

const std::vector<std::shared_ptr<const Codec>>& codecs_here() {
  static const std::vector<std::shared_ptr<const Codec>> all = [] {
    std::vector<std::shared_ptr<const Codec>> each;
    for (std::size_t i = 0; i < kCodecs.size(); ++i) {
      each.push_back(made(i));
    }
    return each;
  }();
  return all;
}

}  // namespace

/// The first byte says which codec's.
std::vector<std::string> seeds() {
  std::vector<std::string> all;
  Stream stream(Device{});
  for (std::size_t i = 0; i < codecs_here().size(); ++i) {
    Tensor x = stream.allocate({kNumbers});
    const RandomStream random(i, Purpose::test);
    for (std::int64_t j = 0; j < kNumbers; ++j) {
      x.span<float>()[static_cast<std::size_t>(j)] =
          static_cast<float>(random.normal(static_cast<std::uint64_t>(j)));
    }
    LinkState state;
    const CodedLink link{.codec = codecs_here()[i], .feedback = true, .seed = 1, .name = i};
    const Tensor message = link.encode(stream, x, 1, state);
    const auto words = message.span<std::int32_t>();
    std::string bytes(1, static_cast<char>(i));
    bytes.append(reinterpret_cast<const char*>(words.data()), 4 * words.size());
    all.push_back(bytes);
  }
  return all;
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  if (size == 0) {
    return 0;
  }
  static Stream stream{Device{}};
  const Codec& codec = *fuzz::codecs_here()[data[0] % fuzz::kCodecs.size()];
  const auto words = static_cast<std::int64_t>((size - 1) / 4);
  const Tensor message = stream.allocate({words}, DType::int32);
  if (words > 0) {
    std::memcpy(message.data<std::int32_t>(), data + 1, static_cast<std::size_t>(4 * words));
  }
  const Result<void> checked = check_message(&codec, message, fuzz::kNumbers);
  fuzz::tried(checked);
  if (checked) {  // what was checked can be read
    (void)decoded(stream, codec, message, fuzz::kNumbers);
  }
  return 0;
}
