#include "messages/fields.hpp"

#include <array>
#include <cstddef>
#include <utility>

namespace troupe {
namespace {

using Alternatives = Message::variant;

template <std::size_t I>
void become(Message& message) {
  message.emplace<I>();
}

template <std::size_t... I>
constexpr auto makers(std::index_sequence<I...>) {
  return std::array<void (*)(Message&), sizeof...(I)>{&become<I>...};
}

constexpr auto kMakers = makers(std::make_index_sequence<std::variant_size_v<Alternatives>>{});

}  // namespace

void archive(Archive& a, Message& message) {
  auto index = static_cast<std::uint32_t>(message.index());
  a(index);
  if (a.reading()) {
    if (index >= kMakers.size()) {
      throw ArchiveError("the state has a message of a kind that there is none of");
    }
    kMakers[index](message);
  }
  std::visit([&](auto& m) { a(m); }, static_cast<Alternatives&>(message));
}

}  // namespace troupe
