#include "apps/python/data.hpp"

#include "apps/python/arrays.hpp"
#include "apps/python/schemes.hpp"
#include "runtime/data/registry.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace troupe::python {
namespace {

/// What Python says of a data set: attributes of the same names.
struct Facts {
  explicit Facts(nb::handle of)
      : sample(shape_of(of.attr("sample"))),
        tokens(nb::cast<bool>(of.attr("tokens"))),
        classes(nb::cast<int>(of.attr("classes"))),
        labels(nb::cast<std::int64_t>(of.attr("labels"))),
        values(nb::cast<std::int64_t>(of.attr("values"))),
        train(nb::cast<std::int64_t>(of.attr("train"))),
        test(nb::cast<std::int64_t>(of.attr("test"))) {}

  Shape sample;
  bool tokens;
  int classes;
  std::int64_t labels;
  std::int64_t values;
  std::int64_t train;
  std::int64_t test;
};

class OfFacts : public Dataset {
 public:
  explicit OfFacts(const Facts& facts) : facts_(facts) {}

  std::int64_t size(Split split) const override {
    return split == Split::train ? facts_.train : facts_.test;
  }

  Shape sample_shape() const override { return facts_.sample; }

  DType input_type() const override { return facts_.tokens ? DType::int32 : DType::float32; }

  int classes() const override { return facts_.classes; }

  std::int64_t labels_per_sample() const override { return facts_.labels; }

  std::int64_t values() const override { return facts_.values; }

 protected:
  const Facts& facts() const { return facts_; }

 private:
  Facts facts_;
};

template <class T>
const T* first_of(nb::handle array, const char* what) {
  nb::ndarray<const T, nb::c_contig, nb::device::cpu> given;
  if (!nb::try_cast(array, given, false)) {  // a converted copy would not outlive this
    throw nb::type_error(
        (std::string(what) + " is no contiguous array of the right dtype").c_str());
  }
  return given.data();
}

/// Rows of arrays: no copy of them is made, and no Python is needed to gather.
class Arrays final : public OfFacts {
 public:
  Arrays(const Facts& facts, nb::handle x, nb::handle y, nb::handle x_test, nb::handle y_test)
      : OfFacts(facts), train_(facts, x, y), test_(facts, x_test, y_test) {}

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t,
              const Samples& to) const override {
    const Rows& rows = split == Split::train ? train_ : test_;
    const std::int64_t width = facts().sample.elements();
    copy(rows.x, indices, width, to.x);
    copy(rows.tokens, indices, width, to.tokens);
    copy(rows.labels, indices, facts().labels, to.labels);
    copy(rows.values, indices, facts().values, to.targets);
  }

 private:
  struct Rows {
    Rows(const Facts& f, nb::handle of_x, nb::handle of_y)
        : x(f.tokens ? nullptr : first_of<float>(of_x, "x")),
          tokens(f.tokens ? first_of<std::int32_t>(of_x, "x") : nullptr),
          labels(f.classes > 0 ? first_of<std::int32_t>(of_y, "y") : nullptr),
          values(f.classes > 0 ? nullptr : first_of<float>(of_y, "y")),
          owners{hold(of_x), hold(of_y)} {}

    const float* x;
    const std::int32_t* tokens;
    const std::int32_t* labels;
    const float* values;
    HeldRef owners[2];
  };

  template <class T>
  static void copy(const T* from,
                   std::span<const std::int64_t> indices,
                   std::int64_t width,
                   std::span<T> to) {
    if (!from) {
      return;
    }
    T* at = to.data();
    for (const std::int64_t index : indices) {
      at = std::copy_n(from + index * width, width, at);
    }
  }

  Rows train_;
  Rows test_;
};

/// An object with gather(split, indices, epoch) -> (x, y).
class Gatherer final : public OfFacts {
 public:
  Gatherer(const Facts& facts, nb::handle object, std::string name)
      : OfFacts(facts), object_(hold(object)), name_(std::move(name)) {}

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t epoch,
              const Samples& to) const override {
    with_python(name_ + ".gather", [&] {
      const nb::object made = object_->get().attr("gather")(
          split == Split::train ? "train" : "test",
          array_of(std::vector<std::int64_t>(indices.begin(), indices.end())),
          epoch);
      take(made[0], "x", to.x, to.tokens);
      take(made[1], "y", to.targets, to.labels);
    });
  }

 private:
  void take(nb::handle array,
            const char* what,
            std::span<float> numbers,
            std::span<std::int32_t> integers) const {
    numbers.empty() ? fill(array, what, integers) : fill(array, what, numbers);
  }

  template <class T>
  void fill(nb::handle array, const char* what, std::span<T> to) const {
    nb::ndarray<const T, nb::c_contig, nb::device::cpu> given;
    if (!nb::try_cast(array, given) || given.size() != to.size()) {
      throw PythonFailed(concat(name_,
                                ".gather: ",
                                what,
                                " has to be a contiguous array of ",
                                to.size(),
                                " numbers of the right dtype"));
    }
    std::copy_n(given.data(), given.size(), to.data());
  }

  HeldRef object_;
  std::string name_;
};

}  // namespace

void bind_data(nb::module_& m) {
  nb::class_<Data>(m, "Data");
  m.def("arrays",
        [](nb::handle facts, nb::handle x, nb::handle y, nb::handle x_test, nb::handle y_test) {
          return Data{std::make_shared<Arrays>(Facts(facts), x, y, x_test, y_test)};
        });
  m.def("gatherer", [](nb::handle facts, nb::handle object, std::string name) {
    return Data{std::make_shared<Gatherer>(Facts(facts), object, std::move(name))};
  });
  m.def("register_datasets", [](nb::handle opener) {
    raise_where_refused(register_dataset(
        {.info = {.name = "python",
                  .summary = "samples that a Python program has",
                  .options = {{.name = "id",
                               .doc = "which of the process's data sets",
                               .kind = Option::Kind::text}},
                  .replaces = true},
         .open = [held = hold(opener)](
                     const DatasetContext& context) -> Result<std::shared_ptr<const Dataset>> {
           try {
             return with_python("data", [&] {
               return nb::cast<Data>(held->get()(context.values.text("id"))).set;
             });
           } catch (const PythonFailed& failed) {
             return Error{ErrorKind::data, failed.what()};
           }
         }}));
  });
  m.def("batch_order",
        [](std::int64_t samples, std::int64_t batch_size, std::uint64_t seed, std::int64_t batch) {
          BatchOrder order(samples, batch_size, seed);
          const auto indices = order.indices(batch, 0, 1);
          return array_of(std::vector<std::int64_t>(indices.begin(), indices.end()));
        });
}

}  // namespace troupe::python
