// Deals the portions of a batch to workers that are free (Sandblaster; Dean et al. 2012, section
// 4.2): each once, in order; when none is left, the oldest unfinished ones again, as backup copies.
// Whoever finishes a portion first counts.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace troupe {

class PortionDealer {
 public:
  /// `backup`: copies of a portion beyond the first that may be out at a time.
  PortionDealer(std::int32_t portions, std::int32_t backup);

  /// The portion that worker `worker`, which has none, is to work on; none: there is nothing for it.
  std::optional<std::int32_t> deal(std::int32_t worker);

  /// `worker` has finished `portion`. False: somebody had done so before, and this does not count.
  bool finish(std::int32_t worker, std::int32_t portion);

  /// Whatever `worker` worked on must be dealt again.
  void lose(std::int32_t worker);

  bool complete() const { return left_ == 0; }

  std::int32_t left() const { return left_; }  // portions that nobody has finished

  void archive(auto& a) { a(portions_, backup_, left_); }

 private:
  struct Portion {
    std::set<std::int32_t> workers{};  // that work on it
    bool done = false;
  };

  std::vector<Portion> portions_;
  std::int32_t backup_;
  std::int32_t left_;
};

}  // namespace troupe
