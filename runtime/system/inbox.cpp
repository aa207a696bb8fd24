#include "runtime/system/inbox.hpp"

#include "messages/messages.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

InputName name_of(const Message& message) {
  InputName name{.from = message.from, .message = static_cast<std::uint16_t>(message.index())};
  visit(
      [&name]<class M>(const M& m) {
        if constexpr (requires { m.sequence; }) {
          name.number = m.sequence;
        } else if constexpr (requires { m.request; }) {
          name.number = m.request;
        } else if constexpr (requires { m.lane; }) {
          name.number =
              static_cast<std::uint64_t>(m.lane);  // jobs of two lanes do not wait for each other
        }
      },
      message);
  return name;
}

void Inbox::keep(Message message) {
  const InputName name = name_of(message);
  if (again_.erase(name) == 0) {
    kept_[name].push_back({++arrivals_, std::move(message)});
  }
}

std::optional<Message> Inbox::take_first() {
  const auto first = std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
    return a.second.front().arrival < b.second.front().arrival;
  });
  return first == kept_.end() ? std::optional<Message>() : take_out(first);
}

std::optional<Message> Inbox::take(const InputName& name) {
  const auto kept = kept_.find(name);
  return kept == kept_.end() ? std::optional<Message>() : take_out(kept);
}

Message Inbox::take_out(ByName::iterator place) {
  Message message = std::move(place->second.front().message);
  place->second.pop_front();
  if (place->second.empty()) {
    kept_.erase(place);
  }
  return message;
}

void Inbox::Kept::archive(Archive& a) {
  a(arrival, message.from);
  message.archive(a);
}

void Inbox::archive(Archive& a) {
  a(kept_, arrivals_, again_);
}

}  // namespace troupe
