#include "messages/messages.hpp"

#include "messages/archive.hpp"

#include <array>
#include <cstdint>

namespace troupe {
namespace {

/// The struct's own name, which the compiler has in that of this function: "... [with M = troupe::Ran<...>; ...]".
template <class M>
constexpr std::string_view name_of() {
  constexpr std::string_view kBefore = "M = troupe::";
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find(kBefore) + kBefore.size());
  return name.substr(0, name.find_first_of("<;]"));
}

struct Kind {
  std::string_view name;
  Message (*make)();
};

template <class... M>
constexpr std::array<Kind, sizeof...(M)> kinds_of(List<M...>) {
  return {Kind{name_of<M>(), [] {
                 return Message(M());
               }}...};
}

constexpr auto kKinds = kinds_of(Kinds());

template <class M>
Stamp identity_of(const M& m) {
  if constexpr (requires { m.identity(); }) {
    return m.identity();
  } else {
    return m.stamp;
  }
}

}  // namespace

Message::Message(const Message& other) {
  if (other) {
    *this = visit([](const auto& m) { return Message(m); }, other);
  }
  from = other.from;
}

void Message::destroy() noexcept {
  visit([](auto& m) { delete &m; }, *this);
}

void Message::archive(Archive& a) {
  std::uint32_t index = index_;
  a(index);
  if (a.reading()) {
    if (index >= kKinds.size()) {
      throw ArchiveError("the state has a message of an unknown kind");
    }
    *this = sent_by(from, kKinds[index].make());
  }
  visit([&a](auto& m) { a(m); }, *this);
}

std::string_view message_name(std::size_t index) {
  return kKinds.at(index).name;
}

std::string_view message_name(const Message& message) {
  return message_name(message.index());
}

Stamp message_stamp(const Message& message) {
  return visit([](const auto& m) { return identity_of(m); }, message);
}

}  // namespace troupe
