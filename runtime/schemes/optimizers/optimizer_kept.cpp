// What an OptimizerStep keeps, by parameter: as it stands in files, and as another cut of the network begins with it.
#include "runtime/schemes/optimizers/optimizer_step.hpp"

#include <algorithm>

namespace troupe {
namespace {

using Values = OptimizerStep::Kept::Values;

Values to_floats(const Tensor& x) {
  const std::vector<double> values = to_host(x);
  return {values.begin(), values.end()};
}

Tensor flat(Stream& stream, const Values& values) {
  return from_host(stream, values, {std::ssize(values)});
}

}  // namespace

/// The stretch that the piece stands in.
std::size_t OptimizerStep::stretch_of(const SliceLayout::Piece& piece) const {
  const auto found = std::find_if(stretches_.begin(), stretches_.end(), [&](const Stretch& part) {
    return part.slice == piece.slice && part.offset <= piece.offset &&
           piece.offset < part.offset + std::max<std::int64_t>(1, part.size);
  });
  TROUPE_CHECK(found != stretches_.end(), "[OptimizerStep] a parameter stands in no slice");
  return static_cast<std::size_t>(found - stretches_.begin());
}

/// Of the tensors that are kept of it.
std::vector<std::string> OptimizerStep::names_of(const Stretch& part) const {
  const UpdateMethod& method = method_of(part);
  const std::size_t count = static_cast<std::size_t>(method.kept()) + also_kept(part).size();
  return kept_names(optimizer_.scheme(), method, count);
}

OptimizerStep::Kept OptimizerStep::kept() const {
  Kept kept{.updates = updates_, .carried = carried_};
  for (const SliceLayout::Piece& piece : layout_.pieces) {
    const std::size_t index = stretch_of(piece);
    const Stretch& part = stretches_[index];
    const State& state = state_[index];
    const auto own = [&](const Tensor& x) {
      const Values all = to_floats(x);
      const auto first = all.begin() + (piece.offset - part.offset);
      return Values(first, first + piece.shape.elements());
    };
    const std::vector<std::string> names = names_of(part);
    const auto by_element = static_cast<std::size_t>(method_of(part).kept());
    auto& moments = kept.moments.emplace_back();
    for (std::size_t i = 0; i < state.moments.size(); ++i) {
      moments.emplace_back(names.at(i),
                           i < by_element ? own(state.moments[i]) : to_floats(state.moments[i]));
    }
    kept.displacements.push_back(state.displacement ? own(state.displacement) : Values{});
  }
  return kept;
}

bool OptimizerStep::begin(Stream& stream, const Kept& kept) {
  TROUPE_CHECK(kept.moments.size() == layout_.pieces.size(), "[OptimizerStep] other parameters");
  reset();
  std::vector<std::vector<Values>> moments(stretches_.size());
  std::vector<Values> displacements(stretches_.size());
  for (std::size_t i = 0; i < layout_.pieces.size(); ++i) {
    const SliceLayout::Piece& piece = layout_.pieces[i];
    const std::size_t index = stretch_of(piece);
    const Stretch& part = stretches_[index];
    const auto place = [&](const Values& values, Values& whole) {
      whole.resize(static_cast<std::size_t>(part.size));
      std::copy(values.begin(), values.end(), whole.begin() + (piece.offset - part.offset));
    };
    const std::vector<std::string> names = names_of(part);
    const auto by_element = static_cast<std::size_t>(method_of(part).kept());
    if (kept.moments[i].size() != names.size()) {
      return false;
    }
    moments[index].resize(names.size());
    for (std::size_t m = 0; m < names.size(); ++m) {
      const auto& [name, values] = kept.moments[i][m];
      if (name != names[m] || (m < by_element && std::ssize(values) != piece.shape.elements())) {
        return false;
      }
      if (m < by_element) {
        place(values, moments[index][m]);
      } else {
        moments[index][m] = values;
      }
    }
    // Error feedback needs the last update's, of the whole stretch: who kept this may have smoothed it, or cut elsewhere.
    if (const Values& values = kept.displacements.at(i);
        optimizer_.displacement() && optimizer_.error_feedback() == 0 &&
        std::ssize(values) == piece.shape.elements()) {
      place(values, displacements[index]);
    }
  }
  for (std::size_t index = 0; index < stretches_.size(); ++index) {
    for (const Values& values : moments[index]) {
      state_[index].moments.push_back(flat(stream, values));
    }
    if (!displacements[index].empty()) {
      state_[index].displacement = flat(stream, displacements[index]);
    }
  }
  stream.synchronize();
  updates_ = kept.updates;
  carried_ = kept.carried;
  return true;
}

}  // namespace troupe
