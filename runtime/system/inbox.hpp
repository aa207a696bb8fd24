// What has come to a copy of a machine (copied.hpp) and is not taken yet: by name, as copies get it in different orders.
#pragma once

#include "messages/archive.hpp"
#include "messages/copies.hpp"
#include "messages/message.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>

namespace troupe {

/// Of what has come to a machine.
InputName name_of(const Message& message);

/// Whether they are equal, whoever has said them.
inline bool same_words(const InputName& x, const InputName& y) {
  return x.message == y.message && x.number == y.number;
}

class Inbox {
 public:
  void keep(Message message);

  /// The first that has come.
  std::optional<Message> take_first();
  /// ... of those of that name.
  std::optional<Message> take(const InputName& name);

  /// It has come otherwise: where it comes yet it is dropped.
  void expect_again(const InputName& name) { again_.insert(name); }

  void archive(Archive& a);

 private:
  struct Kept {
    std::uint64_t arrival = 0;  // counts what has come
    Message message{};

    void archive(Archive& a);
  };

  using ByName = std::map<InputName, std::deque<Kept>>;

  Message take_out(ByName::iterator place);

  ByName kept_;
  std::uint64_t arrivals_ = 0;
  std::set<InputName> again_;
};

}  // namespace troupe
