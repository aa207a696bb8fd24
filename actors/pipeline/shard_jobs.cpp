#include "actors/pipeline/shard_jobs.hpp"

#include "actors/pipeline/optimizer_parts.hpp"
#include "kernels/combine.hpp"
#include "kernels/elementwise.hpp"

#include <utility>

namespace troupe {

void run_computed(Effects& fx,
                  const Stamp& stamp,
                  std::string what,
                  std::function<Computed(Stream&)> job,
                  Lane lane) {
  Run run{.lane = lane, .stamp = stamp};
  run.job = [lane, what = std::move(what), job = std::move(job)](Stream& stream) mutable {
    const auto make = [&](Stream& on) {
      Computed made = job(on);
      made.what = what;
      return made;
    };
    return ran(lane, make, stream);
  };
  fx.run(std::move(run));
}

void add_tied(Stream& stream, const TiedGradients& tied, const std::vector<Tensor>& gradient) {
  for (const auto& [slice, share] : tied) {
    const Tensor& to = gradient.at(slice);
    add(stream, to, here(stream, share), ActivationKind::none, to);
  }
}

void move_along(Stream& stream,
                std::size_t slice,
                const Tensor& from,
                const Tensor& to,
                std::vector<Weights>& predictions) {
  for (Weights& prediction : predictions) {
    Tensor& predicted = prediction[slice].values;
    Tensor out = stream.allocate(predicted.shape());
    // The way first: where it is none, nothing is rounded.
    combine(stream, {{1, to}, {-1, from}, {1, predicted}}, out);
    predicted = out;
  }
}

void follow(Effects& fx,
            const Stamp& stamp,
            Weights before,
            Weights after,
            std::vector<Weights> predictions) {
  run_computed(fx,
               stamp,
               kFollow,
               [before = std::move(before),
                after = std::move(after),
                predictions = std::move(predictions)](Stream& stream) mutable {
                 for (std::size_t s = 0; s < before.size(); ++s) {
                   move_along(stream, s, before[s].values, after[s].values, predictions);
                 }
                 Computed made;
                 for (Weights& prediction : predictions) {
                   for (Slice& slice : prediction) {
                     made.tensors.push_back(std::move(slice.values));
                   }
                 }
                 return made;
               });
}

void take_followed(Computed made, std::vector<Weights>& predictions) {
  std::size_t next = 0;
  for (Weights& prediction : predictions) {
    for (Slice& slice : prediction) {
      slice.values = std::move(made.tensors.at(next++));
    }
  }
}

}  // namespace troupe
