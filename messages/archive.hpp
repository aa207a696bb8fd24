// Writes what a machine keeps, or reads it back. One list of fields serves both ways, so that what is
// written is what is read:
//
//   void Stage::archive(Archive& a) { a(cursor_, shards_, updates_, running_); }
//
// Tensors stand beside the bytes, each buffer once, so that two handles of one tensor are two handles of
// one tensor again. A class is archived by a member `archive(Archive&)`; a plain struct by all of its
// fields (for_each_field.hpp).
#pragma once

#include "kernels/tensor.hpp"
#include "messages/for_each_field.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

class Stream;

/// Bytes that are not what was written, or a state that cannot be written; what() is a sentence for
/// people.
class ArchiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A run cannot be written at this moment, but it may be later.
class NotNow : public ArchiveError {
 public:
  using ArchiveError::ArchiveError;
};

/// What an Archive has written. Tensors are on the host.
struct Archived {
  std::string bytes;
  std::vector<Tensor> tensors;
};

class Archive {
 public:
  /// Writes.
  Archive();
  /// Reads.
  explicit Archive(Archived from);
  ~Archive();

  bool reading() const { return reading_; }

  /// Writes tensors of the host as the handles that they are: for who is done with what was written before
  /// their contents change, as it never does once another actor has the handle. Else they are copied.
  void share_tensors() { shares_ = true; }

  /// Where tensors belong that were on a device when they were written. `stream`, of that device, makes the copies, which
  /// are not waited for; without it they have been made when they are read. It outlives the Archive.
  void set_device(Device device, Stream* stream = nullptr) {
    device_ = device;
    stream_ = stream;
  }

  template <class... T>
  void operator()(T&... values) {
    (value(values), ...);
  }

  /// How those that hold a T which they share, but do not know, archive it: makes an empty one where it
  /// is read, then calls T::archive. Until the next call for T.
  template <class T>
  void lend(std::function<std::shared_ptr<T>()> make) {
    lent_[&kKey<T>] = [make = std::move(make)](Archive& a, std::shared_ptr<void>& held) {
      if (a.reading()) {
        held = make();
      }
      static_cast<T*>(held.get())->archive(a);
    };
  }

  /// What was written. Once.
  Archived take() { return std::move(data_); }

  /// ArchiveError where something is left that nobody has read.
  void expect_end() const;

 private:
  template <class T>
  static inline const char kKey = 0;

  template <class T>
  void value(T& x);
  template <class K, class V>
  void value(std::map<K, V>& all);
  template <class K>
  void value(std::set<K>& all);
  template <class T>
  void value(std::vector<T>& all);
  template <class T>
  void value(std::deque<T>& all);
  template <class T, std::size_t N>
  void value(std::array<T, N>& all);
  template <class T>
  void value(std::optional<T>& x);
  template <class A, class B>
  void value(std::pair<A, B>& x);
  template <class T>
  void value(std::shared_ptr<T>& x);
  void value(std::vector<bool>& all);
  void value(std::string& text);
  void value(Tensor& tensor);
  void value(bool& x);

  template <class List>
  void list(List& all);

  /// The number of elements to come, of at least one byte each.
  std::size_t count(std::size_t size);
  void raw(void* data, std::size_t size);
  void shared(const void* key, std::shared_ptr<void>& held);
  std::uint32_t place_of(const Tensor& tensor);
  Tensor on_device(std::uint32_t place);
  Tensor copied(const Tensor& from, Device to);
  Stream& stream(Device device);

  Archived data_;
  bool reading_ = false;
  bool shares_ = false;
  std::size_t at_ = 0;  // bytes read
  Device device_;
  Stream* stream_ = nullptr;  // of that device
  std::map<const void*, std::function<void(Archive&, std::shared_ptr<void>&)>> lent_;  // by kKey

  struct TensorKey {
    const void* data;
    DType type;
    std::vector<std::int64_t> extents;

    auto operator<=>(const TensorKey&) const = default;
  };

  std::map<TensorKey, std::uint32_t> written_;               // places in data_.tensors
  std::vector<Tensor> kept_;                                 // what they are copies of
  std::map<std::pair<std::uint32_t, Device>, Tensor> read_;  // copies on devices, by place
  std::map<Device, std::unique_ptr<Stream>> streams_;
};

// -- how each kind of value is archived ---------------------------------------------------------------

template <class T>
void Archive::value(T& x) {
  if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
    raw(&x, sizeof x);
  } else if constexpr (requires { x.archive(*this); }) {
    x.archive(*this);
  } else {
    static_assert(std::is_aggregate_v<T>, "no plain struct, and without archive(Archive&)");
    for_each_field(x, [this](auto& field, std::size_t) { value(field); });
  }
}

template <class List>
void Archive::list(List& all) {
  const std::size_t size = count(all.size());
  if (reading_) {
    all.clear();
    for (std::size_t i = 0; i < size; ++i) {
      value(all.emplace_back());
    }
  } else {
    for (auto& one : all) {
      value(one);
    }
  }
}

template <class T>
void Archive::value(std::vector<T>& all) {
  list(all);
}

template <class T>
void Archive::value(std::deque<T>& all) {
  list(all);
}

template <class T, std::size_t N>
void Archive::value(std::array<T, N>& all) {
  for (T& one : all) {
    value(one);
  }
}

template <class K, class V>
void Archive::value(std::map<K, V>& all) {
  const std::size_t size = count(all.size());
  if (reading_) {
    all.clear();
    for (std::size_t i = 0; i < size; ++i) {
      K key{};
      value(key);
      value(all[key]);
    }
  } else {
    for (auto& [key, mapped] : all) {
      value(const_cast<K&>(key));  // only read
      value(mapped);
    }
  }
}

template <class K>
void Archive::value(std::set<K>& all) {
  std::vector<K> listed(all.begin(), all.end());
  value(listed);
  if (reading_) {
    all = std::set<K>(listed.begin(), listed.end());
  }
}

template <class T>
void Archive::value(std::optional<T>& x) {
  bool there = x.has_value();
  value(there);
  if (reading_) {
    x.reset();
    if (there) {
      x = T{};  // emplace() asks whether T can be made of nothing, which a class inside another cannot tell yet
    }
  }
  if (there) {
    value(*x);
  }
}

template <class A, class B>
void Archive::value(std::pair<A, B>& x) {
  value(x.first);
  value(x.second);
}

/// By what was lent for T; empty stays empty.
template <class T>
void Archive::value(std::shared_ptr<T>& x) {
  bool there = x != nullptr;
  value(there);
  if (!there) {
    x.reset();
    return;
  }
  std::shared_ptr<void> held = std::const_pointer_cast<std::remove_const_t<T>>(x);
  shared(&kKey<std::remove_const_t<T>>, held);
  x = std::static_pointer_cast<std::remove_const_t<T>>(held);
}

}  // namespace troupe
