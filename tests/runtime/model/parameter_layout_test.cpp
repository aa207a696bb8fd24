// Which slice has which parameter, and which chunk owns a tied one.
#include "runtime/model/parameter_layout.hpp"

#include "tests/support/catch.hpp"

#include <map>
#include <string>
#include <utility>

namespace parameter_layout_test {

using namespace troupe;

namespace {

/// Parameters and nothing else.
class Holder final : public PlainLayer {
 public:
  Holder(std::string name, std::vector<ParameterSpec> parameters)
      : PlainLayer(std::move(name)), parameters_(std::move(parameters)) {}

  std::vector<ParameterSpec> parameters() const override { return parameters_; }

  Shape output_shape() const override { return {1}; }

  std::int64_t saved_bytes() const override { return 0; }

  Tensor transform(
      const Pass&, Parameters, std::span<Tensor>, const Tensor& x, Saved&) const override {
    return x;
  }

  Tensor transform_gradient(const Pass&, Parameters, Saved&, Tensor dy, bool) const override {
    return dy;
  }

  void weight_gradient(Stream&, const Saved&, std::span<const Gradient>) const override {}

 private:
  std::vector<ParameterSpec> parameters_;
};

ParameterSpec own(const std::string& name, std::int64_t elements) {
  return {.name = name, .shape = {elements}};
}

ParameterSpec tied(const std::string& name, std::int64_t elements) {
  return {.name = name, .shape = {elements}, .tied = true};
}

Network network(std::vector<std::vector<ParameterSpec>> layers) {
  Network n({1});
  for (std::size_t i = 0; i < layers.size(); ++i) {
    n.add(std::make_shared<Holder>("layer" + std::to_string(i), std::move(layers[i])));
  }
  return n;
}

using Sizes = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("parameters start on multiples of 16 elements, in slices about equal", "[model]") {
  const Network n = network({{own("a", 16), own("b", 3)}, {own("c", 30)}, {own("d", 1)}});
  const ChunkParameters one = lay_out(n, {0}, 0, 1);
  CHECK(one.layout.slice_sizes == Sizes{16 + 16 + 32 + 16});
  REQUIRE(one.layout.entries.size() == 4);
  CHECK(one.layout.entries[1].offset == 16);
  CHECK(one.layout.entries[3].offset == 64);
  CHECK(one.layout.parameters() == 16 + 3 + 30 + 1);
  CHECK(one.layout.bytes() == 4 * 80);
  CHECK(one.borrowed.empty());
  REQUIRE(one.reads.size() == 3);
  CHECK(one.reads[1][0].offset == 32);

  const ChunkParameters two = lay_out(n, {0}, 0, 2);
  CHECK(two.layout.slice_sizes == Sizes{32, 48});
  CHECK(two.layout.entries[2].slice == 1);
  CHECK(two.layout.entries[2].offset == 0);
  CHECK(lay_out(n, {0}, 0, 9).layout.slice_sizes == Sizes{16, 16, 32, 16});
}

TEST_CASE("a chunk has its own layers' parameters; one without any has a slice all the same",
          "[model]") {
  const Network n = network({{own("a", 16)}, {}, {own("c", 30)}});
  const ChunkParameters last = lay_out(n, {0, 1, 2}, 2, 1);
  CHECK(last.layout.slice_sizes == Sizes{32});
  CHECK(last.layout.entries[0].spec.name == "c");
  const ChunkParameters none = lay_out(n, {0, 1, 2}, 1, 3);
  CHECK(none.layout.slice_sizes == Sizes{16});
  CHECK(none.layout.entries.empty());
  CHECK(none.reads.size() == 1);
}

TEST_CASE("the first chunk that reads a tied parameter owns it, later ones borrow its slice",
          "[model]") {
  const Network n = network({{own("a", 16), tied("t", 20)}, {own("b", 16)}, {tied("t", 20)}});
  const ChunkParameters owner = lay_out(n, {0, 1}, 0, 1);
  CHECK(owner.layout.slice_sizes == Sizes{16, 32});
  CHECK(owner.layout.entries[1].slice == 1);
  CHECK(owner.borrowed.empty());

  const ChunkParameters borrower = lay_out(n, {0, 1}, 1, 1);
  CHECK(borrower.layout.slice_sizes == Sizes{16});
  REQUIRE(borrower.borrowed.size() == 1);
  CHECK(borrower.borrowed[0].owner == 0);
  CHECK(borrower.borrowed[0].slice == 1);
  CHECK(borrower.borrowed[0].size == 32);
  CHECK(borrower.reads[1][0].slice == 1);  // behind its own one
}

TEST_CASE("fragments take the network's blocks in turn, wherever it is cut", "[model]") {
  Network n({1});
  const auto add = [&](const char* name, std::vector<ParameterSpec> parameters) {
    n.add(std::make_shared<Holder>(name, std::move(parameters)));
  };
  add("wte", {tied("t", 20), own("positions", 16)});
  add("h.0.ln", {own("a", 16)});
  add("h.0.drop", {});
  add("h.0.fc", {own("b", 32)});
  add("h.1.fc", {own("c", 48)});
  add("h.10.fc", {own("d", 16)});
  add("head", {tied("t", 20)});  // nothing of its own
  REQUIRE(blocks_of(n) == 4);
  const ChunkParameters whole = lay_out(n, {0}, 0, 1, 2);
  using Ids = std::vector<std::int64_t>;
  CHECK(whole.layout.fragments ==
        Ids{0, 1, 0});  // the tied one is of the block that reads it first
  CHECK(whole.layout.slice_sizes == Sizes{16 + 48, 16 + 32 + 16, 32});
  CHECK(lay_out(n, {0}, 0, 1, 4).layout.fragments == Ids{0, 1, 2, 3, 0});
  CHECK(lay_out(n, {0}, 0, 1, 1).layout.fragments == Ids{0, 0});
  const ChunkParameters first = lay_out(n, {0, 4}, 0, 1, 2);
  CHECK(first.layout.fragments == Ids{0, 1, 0});
  CHECK(first.layout.slice_sizes == Sizes{16, 48, 32});
  const ChunkParameters second = lay_out(n, {0, 4}, 1, 1, 2);
  CHECK(second.layout.fragments == Ids{0, 1});
  CHECK(second.layout.slice_sizes == Sizes{48, 16});
  REQUIRE(second.borrowed.size() == 1);
  CHECK(second.borrowed[0].slice == 2);
  // A chunk that has a part of some fragments only, and one that has no parameters at all.
  CHECK(lay_out(n, {0, 4, 5}, 1, 1, 4).layout.fragments == Ids{2});
  CHECK(lay_out(n, {0, 2, 3}, 1, 1, 2).layout.fragments == Ids{0});
  CHECK(lay_out(n, {0}, 0, 1).layout.fragments.empty());
}

TEST_CASE("fragments of tensors are packed by size, wherever the network is cut", "[model]") {
  const Network n = network({{tied("t", 90), own("a", 20)},
                             {own("b", 40), own("c", 40)},
                             {},
                             {own("d", 70), own("e", 5)},
                             {tied("t", 90), own("f", 5)}});
  CHECK(dealt_of(n, Dealing::blocks) == 4);
  REQUIRE(dealt_of(n, Dealing::tensors) == 7);
  // t 90 | d 70 | b 40; c to b: 80; a to d: 90; e to b: 85; f to b: 90
  using Ids = std::vector<std::int64_t>;
  const auto all = [&](const std::vector<std::int64_t>& cut, std::int64_t fragments) {
    std::map<std::string, std::int64_t> of;
    for (std::size_t c = 0; c < cut.size(); ++c) {
      const ChunkParameters chunk =
          lay_out(n, cut, static_cast<std::int32_t>(c), 1, fragments, Dealing::tensors);
      for (const ParameterLayout::Entry& e : chunk.layout.entries) {
        of[e.spec.name] = chunk.layout.fragments.at(e.slice);
      }
    }
    return of;
  };
  const std::map<std::string, std::int64_t> three{
      {"t", 0}, {"d", 1}, {"b", 2}, {"c", 2}, {"a", 1}, {"e", 2}, {"f", 2}};
  CHECK(all({0}, 3) == three);
  CHECK(all({0, 1}, 3) == three);
  CHECK(all({0, 2, 4}, 3) == three);
  const std::map<std::string, std::int64_t> seven{
      {"t", 0}, {"d", 1}, {"b", 2}, {"c", 3}, {"a", 4}, {"e", 5}, {"f", 6}};
  CHECK(all({0, 3}, 7) == seven);
  // A chunk has a slice of each fragment that it has tensors of, and the tied one by itself.
  const ChunkParameters first = lay_out(n, {0, 2}, 0, 1, 3, Dealing::tensors);
  CHECK(first.layout.fragments == Ids{1, 2, 0});
  CHECK(first.layout.slice_sizes == Sizes{32, 48 + 48, 96});
  const ChunkParameters second = lay_out(n, {0, 2}, 1, 1, 3, Dealing::tensors);
  CHECK(second.layout.fragments == Ids{1, 2});
  CHECK(second.layout.slice_sizes == Sizes{80, 16 + 16});
  CHECK(second.borrowed.size() == 1);
  CHECK(dealt_of(network({{}}), Dealing::tensors) == 1);
}

TEST_CASE("of layers that share a parameter the last one writes the gradient first", "[model]") {
  const Network n = network({{tied("t", 4)}, {own("a", 4)}, {tied("t", 4)}});
  const ChunkParameters all = lay_out(n, {0}, 0, 1);
  CHECK(all.layout.slice_sizes == Sizes{16, 16});
  CHECK(all.reads[0][0].slice == 1);
  CHECK(all.reads[2][0].slice == 1);
  CHECK_FALSE(all.reads[0][0].writes_first);
  CHECK(all.reads[1][0].writes_first);
  CHECK(all.reads[2][0].writes_first);
}

}  // namespace parameter_layout_test
