// What becomes of a schedule where its chunks are cut in width.
#include "runtime/schemes/schedules/schedule.hpp"

#include <utility>

namespace troupe {
namespace {

/// The actions on the part's chunks that stand for `deep`, on the sections [first, first + sections).
void add_sections(std::vector<Action>& to,
                  const Action& deep,
                  std::int32_t first,
                  std::int32_t sections,
                  std::int32_t width,
                  std::int32_t part) {
  for (std::int32_t i = 0; i < sections; ++i) {
    Action a = deep;
    const std::int32_t section = deep.act == Act::forward ? first + i : first + sections - 1 - i;
    a.chunk = section * width + part;
    to.push_back(a);
  }
}

}  // namespace

Schedule cut_in_width(const Schedule& deep,
                      const std::vector<std::int32_t>& sections,
                      std::int32_t width) {
  Schedule wide = deep;
  wide.width = width;
  wide.options.stages = deep.options.stages * width;
  wide.placement.clear();
  wide.delay.clear();
  wide.stages.clear();
  std::vector<std::int32_t> first;  // section of each chunk
  for (std::size_t c = 0; c < sections.size(); ++c) {
    first.push_back(c == 0 ? 0 : first.back() + sections[c - 1]);
    for (std::int32_t i = 0; i < sections[c] * width; ++i) {
      wide.placement.push_back(deep.placement[c] * width + i % width);
      wide.delay.push_back(deep.delay[c]);
    }
  }
  wide.chunks = static_cast<std::int32_t>(wide.placement.size());
  for (const Sequence& sequence : deep.stages) {
    for (std::int32_t part = 0; part < width; ++part) {
      Sequence& own = wide.stages.emplace_back();
      for (const auto& [from, to] : {std::pair(&sequence.prologue, &own.prologue),
                                     std::pair(&sequence.period, &own.period)}) {
        for (const Action& a : *from) {
          const auto c = static_cast<std::size_t>(a.chunk);
          add_sections(*to, a, first[c], sections[c], width, part);
        }
      }
    }
  }
  return wide;
}

}  // namespace troupe
