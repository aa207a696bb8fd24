// Whether a decoupled scheme keeps what the runtime promises of it.
#include "apps/conformance/kits.hpp"
#include "apps/conformance/replicas.hpp"
#include "apps/topologies/blueprint.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace troupe::conformance {
namespace {

constexpr std::int64_t kRows = 8;

class DecoupledKit {
 public:
  DecoupledKit(const DecoupledScheme& scheme, const ConformanceOptions& options)
      : scheme_(scheme),
        set_(with(choose("decoupled", decoupled_schemes(), scheme, options.values),
                  {"model.mlp.hidden=[8,8]",
                   "model.mlp.activation=relu",
                   "pipeline.stages=3",
                   "pipeline.schedule=sequential"})) {
    if (scheme.influence) {  // on one output, which is a value
      set_.emplace_back("data.teacher.values=true");
      set_.emplace_back("data.teacher.outputs=1");
    }
  }

  Result<std::vector<Finding>> run() {
    auto made = replicas_blueprint(set_);
    TROUPE_TRY(made);
    blueprint_.emplace(*std::move(made));
    std::vector<Finding> all;
    const bool own = scheme_.from == SignalFrom::head || scheme_.from == SignalFrom::nobody;
    for (const auto& [name, check] :
         {std::pair{"pure", &DecoupledKit::pure}, std::pair{"rows", &DecoupledKit::rows}}) {
      all.push_back(own ? caught(name, [&, of = check] { return (this->*of)(); })
                        : Finding{name, true, "another module sends the error signal", false});
    }
    all.push_back(two_equal_replicas(set_));
    all.push_back(resumes(set_));
    return all;
  }

 private:
  /// What a module is told of kRows rows, which stand in the order that `row` gives them.
  template <class F>
  SignalInputs inputs(const Blueprint& b, std::size_t module, F&& row) {
    const auto rows_of = [&](std::int64_t width, std::uint64_t name) {
      const std::vector<float> x = drawn(kRows * width, name);
      std::vector<float> placed(x.size());
      for (std::int64_t r = 0; r < kRows; ++r) {
        std::copy_n(x.begin() + row(r) * width, width, placed.begin() + r * width);
      }
      return from_host(stream_, placed, {kRows, width});
    };
    const auto width_of = [&](std::size_t chunk) {
      return b.chunks[chunk]->output_bytes() / static_cast<std::int64_t>(sizeof(float));
    };
    SignalInputs in{.output = rows_of(width_of(module), 3 * module)};
    if (scheme_.from == SignalFrom::head) {
      in.sent = rows_of(width_of(b.chunks.size() - 1), 3 * module + 1);
      in.influence = scheme_.influence ? rows_of(width_of(module), 3 * module + 2) : Tensor();
    } else {
      in.labels = stream_.allocate({kRows}, DType::int32);
      for (std::int64_t r = 0; r < kRows; ++r) {
        in.labels.span<std::int32_t>()[static_cast<std::size_t>(r)] =
            static_cast<std::int32_t>(row(r) % b.data->classes());
      }
    }
    return in;
  }

  Finding pure() {
    const auto in_order = [](std::int64_t r) {
      return r;
    };
    for (std::size_t module = 0; module + 1 < blueprint_->chunks.size(); ++module) {
      const auto signal = module_signal(*blueprint_, module, stream_);
      const auto again = module_signal(*blueprint_, module, stream_);
      const SignalInputs in = inputs(*blueprint_, module, in_order);
      const std::vector<double> one = to_host(signal->error(stream_, in));
      if (!std::ranges::all_of(one, [](double x) { return std::isfinite(x); })) {
        return {"pure", false, concat("the signal of module ", module, " is not finite")};
      }
      if (one != to_host(signal->error(stream_, in))) {
        return {"pure", false, "of the same inputs two signals differ"};
      }
      if (one != to_host(again->error(stream_, in))) {
        return {"pure", false, "made again from the same seed a module has another signal"};
      }
    }
    return {"pure", true, "the same signal of the same inputs, also of a module made again"};
  }

  /// Mini-batches are drawn in one order and are cut into micro-batches: a row's error is its own.
  Finding rows() {
    double off = 0;
    double size = 0;
    for (std::size_t module = 0; module + 1 < blueprint_->chunks.size(); ++module) {
      const auto signal = module_signal(*blueprint_, module, stream_);
      const auto error = [&](auto row) {
        return to_host(signal->error(stream_, inputs(*blueprint_, module, row)));
      };
      const std::vector<double> straight = error([](std::int64_t r) { return r; });
      const std::vector<double> reversed = error([](std::int64_t r) { return kRows - 1 - r; });
      const std::size_t width = straight.size() / kRows;
      for (std::size_t i = 0; i < straight.size(); ++i) {
        const double other = reversed[(kRows - 1 - i / width) * width + i % width];
        off += (straight[i] - other) * (straight[i] - other);
        size += straight[i] * straight[i];
      }
    }
    // A product may add in another order where its rows stand in another one.
    const bool same = off <= 1e-12 * size;
    return {"rows",
            same,
            same ? "in another order the rows of a micro-batch have the same errors"
                 : "a row's error depends on where it stands in the micro-batch"};
  }

  const DecoupledScheme& scheme_;
  Assignments set_;
  std::optional<Blueprint> blueprint_{};
  Stream stream_{Device{}};
};

}  // namespace

Result<std::vector<Finding>> check_decoupled_conformance(const DecoupledScheme& scheme,
                                                         const ConformanceOptions& options) {
  return DecoupledKit(scheme, options).run();
}

Result<std::vector<Finding>> check_extension_conformance(const ExtensionScheme& scheme,
                                                         const ConformanceOptions& options) {
  Assignments set = choose("extension.custom.name=" + scheme.info.name, options.values);
  set.push_back(concat("replicas.count=", kReplicas));
  set.emplace_back("clock.workers.spread=0.6");
  const auto made = replicas_blueprint(set);
  TROUPE_TRY(made);
  const ReplicaTrial with = run_replicas(set);
  const ReplicaTrial without = run_replicas(Assignments(set.end() - 2, set.end()));
  const bool steers = with.result.summary.weights_sha256 != without.result.summary.weights_sha256;
  return std::vector<Finding>{
      with.trouble.empty() ? Finding{"listens",
                                     true,
                                     steers ? "it changes the weights: a run with it is another one"
                                            : "with and without it the same weights, bit for bit",
                                     !steers}
                           : Finding{"listens", false, with.trouble},
      two_equal_replicas(set),
      resumes(set)};
}

}  // namespace troupe::conformance
