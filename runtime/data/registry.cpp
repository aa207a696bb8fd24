#include "runtime/data/registry.hpp"

#include "experiment/data.pb.h"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/data/arrays.hpp"
#include "runtime/data/cifar.hpp"
#include "runtime/data/csv.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/glyphs.hpp"
#include "runtime/data/idx.hpp"
#include "runtime/data/image_folder.hpp"
#include "runtime/data/sparse.hpp"
#include "runtime/data/teacher.hpp"
#include "runtime/data/text.hpp"
#include "runtime/data/tokens.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

/// For objectives that look at no data: zeros, and enough of them that an epoch is long.
class NoData final : public Dataset {
 public:
  std::int64_t size(Split split) const override { return split == Split::train ? 1 << 20 : 1; }

  Shape sample_shape() const override { return {1}; }

  int classes() const override { return 0; }

  std::int64_t values() const override { return 1; }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t /*epoch*/,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    std::fill(to.x.begin(), to.x.end(), 0.0f);
    std::fill(to.targets.begin(), to.targets.end(), 0.0f);
  }
};

/// A built-in one; what it is says its alternative in messages/experiment/data.proto.
DatasetScheme scheme(const char* name, decltype(DatasetScheme::open) open) {
  const auto* field = proto::Data::descriptor()->FindFieldByName(name);
  return {.info = {.name = name, .summary = field->options().GetExtension(proto::doc)},
          .open = std::move(open)};
}

std::vector<DatasetScheme> built_in() {
  using Context = DatasetContext;
  return {
      scheme("glyphs", [](const Context& c) { return make_glyphs(c.data.glyphs(), c.seed); }),
      scheme("teacher", [](const Context& c) { return make_teacher(c.data.teacher(), c.seed); }),
      scheme("mnist", [](const Context& c) { return open_idx(kMnist, c.data.mnist()); }),
      scheme("fashion_mnist",
             [](const Context& c) { return open_idx(kFashionMnist, c.data.fashion_mnist()); }),
      scheme("cifar10",
             [](const Context& c) { return open_cifar(kCifar10, c.data.cifar10(), c.seed); }),
      scheme("cifar100",
             [](const Context& c) { return open_cifar(kCifar100, c.data.cifar100(), c.seed); }),
      scheme("text", [](const Context& c) { return open_text(c.data.text(), c.seed); }),
      scheme("csv", [](const Context& c) { return open_csv(c.data.csv(), c.seed, c.prepared); }),
      scheme("arrays",
             [](const Context& c) { return open_arrays(c.data.arrays(), c.seed, c.prepared); }),
      scheme(
          "folder",
          [](const Context& c) { return open_image_folder(c.data.folder(), c.seed, c.prepared); }),
      scheme("tokens", [](const Context& c) { return open_tokens(c.data.tokens(), c.seed); }),
      scheme("sparse", [](const Context& c) { return make_sparse(c.data.sparse(), c.seed); }),
      scheme("none",
             [](const Context&) {
               return Result<std::shared_ptr<const Dataset>>(std::make_shared<NoData>());
             }),
  };
}

Registry<DatasetScheme>& table() {
  static Registry<DatasetScheme> all(built_in());
  return all;
}

}  // namespace

Result<void> register_dataset(DatasetScheme scheme) {
  if (!scheme.open) {
    return Error{ErrorKind::usage,
                 concat("register_dataset: \"", scheme.info.name, "\" has no function open")};
  }
  return table().add(std::move(scheme), "register_dataset");
}

const Registry<DatasetScheme>& dataset_schemes() {
  return table();
}

Result<const DatasetScheme*> dataset_scheme(const proto::Data& data) {
  if (data.has_custom()) {
    return table().chosen(data.custom(), "data");
  }
  const DatasetScheme* found = table().find(choice_name(data));
  TROUPE_CHECK(found, "no data set '", choice_name(data), "'");
  return found;
}

Result<void> check_data(const proto::Experiment& experiment) {
  const auto scheme = dataset_scheme(sections::data(experiment));
  TROUPE_TRY(scheme);
  const SchemeInfo& info = (*scheme)->info;
  return info.check ? info.check(experiment) : Result<void>();
}

}  // namespace troupe
