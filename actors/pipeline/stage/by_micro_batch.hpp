// What a stage keeps by micro-batch until it is taken out: a ring in the micro-batches' order. They come and go nearly in
// that order, so that the first place and the last are found at once, where a tree would look through its nodes.
#pragma once

#include "actors/pipeline/stage/micro_batch.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

template <class T>
class ByMicroBatch {
 public:
  std::size_t size() const { return count_; }

  /// Null where there is none. Until something is added or taken out.
  T* find(const MicroBatch& key) { return const_cast<T*>(std::as_const(*this).find(key)); }

  const T* find(const MicroBatch& key) const {
    const std::size_t i = place_there(key);
    return is_at(i, key) ? &at(i).value : nullptr;
  }

  /// What is kept of it; of a new one a T{}. Until something is added or taken out.
  T& operator[](const MicroBatch& key) {
    const std::size_t i = place(key);
    if (!is_at(i, key)) {
      grow();
      for (std::size_t later = count_++; later > i; --later) {
        at(later) = std::move(at(later - 1));
      }
      at(i) = {key, T{}};
    }
    return at(i).value;
  }

  std::optional<T> take(const MicroBatch& key) {
    std::size_t i = place_there(key);
    if (!is_at(i, key)) {
      return {};
    }
    std::optional<T> taken(std::move(at(i).value));
    if (2 * i < count_) {
      for (; i > 0; --i) {
        at(i) = std::move(at(i - 1));
      }
      at(0) = {};
      first_ = (first_ + 1) & (ring_.size() - 1);
    } else {
      for (; i + 1 < count_; ++i) {
        at(i) = std::move(at(i + 1));
      }
      at(i) = {};
    }
    --count_;
    return taken;
  }

  /// As a std::map of the same.
  void archive(auto& a) {
    std::vector<std::pair<MicroBatch, T>> all;
    for (std::size_t i = 0; !a.reading() && i < count_; ++i) {
      all.emplace_back(at(i).key, at(i).value);
    }
    a(all);
    if (a.reading()) {
      *this = {};
      for (auto& [key, value] : all) {
        (*this)[key] = std::move(value);
      }
    }
  }

 private:
  struct Entry {
    MicroBatch key{};
    T value{};
  };

  // The ring's size is a power of two.
  Entry& at(std::size_t i) { return ring_[(first_ + i) & (ring_.size() - 1)]; }

  const Entry& at(std::size_t i) const { return ring_[(first_ + i) & (ring_.size() - 1)]; }

  bool is_at(std::size_t i, const MicroBatch& key) const {
    return i < count_ && !(key < at(i).key);
  }

  /// The same as place(); of one that is there it is mostly the first.
  std::size_t place_there(const MicroBatch& key) const {
    return count_ == 0 || !(at(0).key < key) ? 0 : place(key);
  }

  /// Of the first that is not before `key`; of a new one mostly behind the last.
  std::size_t place(const MicroBatch& key) const {
    if (count_ == 0 || at(count_ - 1).key < key) {
      return count_;
    }
    std::size_t before = 0;  // so many are
    for (std::size_t end = at(0).key < key ? count_ - 1 : 0; before < end;) {
      const std::size_t middle = (before + end) / 2;
      if (at(middle).key < key) {
        before = middle + 1;
      } else {
        end = middle;
      }
    }
    return before;
  }

  /// There is room for one more.
  void grow() {
    if (count_ < ring_.size()) {
      return;
    }
    std::vector<Entry> wider(ring_.empty() ? 1 : 2 * ring_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      wider[i] = std::move(at(i));
    }
    ring_ = std::move(wider);
    first_ = 0;
  }

  std::vector<Entry> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace troupe
