#include "runtime/system/driver.hpp"

namespace troupe {
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

Message run_job(Run& run, Stream& stream) {
  Message made = run.job(stream);
  run.job = nullptr;  // the inputs may go
  return made;
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
