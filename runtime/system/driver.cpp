#include "runtime/system/driver.hpp"

#include "kernels/stream.hpp"

namespace troupe {
namespace {

void mark_ready(Outputs& out, const Event& event) {
  const auto mark = [&](Tensor& tensor) {
    if (tensor) {
      tensor.set_ready(event);
    }
  };
  for (NamedTensor& named : out.bundle) {
    mark(named.tensor);
  }
  for (auto& layer : out.stash) {
    for (Tensor& tensor : layer) {
      mark(tensor);
    }
  }
  for (Tensor& tensor : out.tensors) {
    mark(tensor);
  }
  mark(out.result);
  for (Weights& weights : out.weights) {
    for (Slice& slice : weights) {
      mark(slice.values);
    }
  }
}

}  // namespace

const char* to_string(Work work) {
  switch (work) {
    case Work::unmodelled:
      return "other";
    case Work::forward:
      return "forward";
    case Work::input_gradient:
      return "input_gradient";
    case Work::weight_gradient:
      return "weight_gradient";
    case Work::backward:
      return "backward";
    case Work::update:
      return "update";
  }
  return "";
}

Outputs run_job(Run& run, Stream& stream) {
  Outputs out = run.job(stream);
  run.job = nullptr;  // the inputs may go
  if (stream.device().kind != DeviceKind::cpu) {
    mark_ready(out, stream.record());
  }
  return out;
}

std::string explain_stall(const std::vector<std::pair<std::string, std::string>>& waits) {
  std::string text = "the run has stalled:";
  for (const auto& [name, what] : waits) {
    if (!what.empty()) {
      text += " " + name + " waits for " + what + ";";
    }
  }
  text.back() = '.';
  return text;
}

}  // namespace troupe
