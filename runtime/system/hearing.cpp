#include "runtime/system/hearing.hpp"

#include "messages/archive_sized.hpp"
#include "runtime/system/inbox.hpp"

#include <algorithm>

namespace troupe {

Hearing::Hearing(const std::vector<Copies>& all) {
  for (const Copies& of : all) {
    for (std::uint32_t copy = 0; copy < of.seats.size(); ++copy) {
      for (std::size_t i = 0; i < of.seats[copy].size(); ++i) {
        const ActorId first = of.seats.front()[i];
        copies_[first].push_back(of.seats[copy][i]);
        heard_[first];
        places_[of.seats[copy][i]] = {first, copy};
      }
    }
  }
}

bool Hearing::takes(Message& message, Effects& fx) {
  const auto place = places_.find(message.from);
  if (place == places_.end()) {
    return true;
  }
  const auto [first, copy] = place->second;
  Heard& heard = heard_.at(first);
  if (!is_news(message, copy, heard)) {
    return false;
  }
  for (const ActorId to : copies_of(first)) {  // before the machine may refuse it
    fx.pass_on(to, CopyWord{.kind = CopyWord::Kind::heard, .input = heard.names.back()}, false);
  }
  message.from = first;
  return true;
}

/// Whether the machine says what it has not said before.
bool Hearing::is_news(const Message& message, std::uint32_t copy, Heard& heard) {
  if (copy < heard.speaker) {
    return false;
  }
  heard.speaker = copy;
  if (const auto* word = get_if<CopyWord>(&message)) {
    const std::uint64_t unknown = heard.count - std::min(heard.count, word->number);
    const std::uint64_t last = std::min<std::uint64_t>(unknown, heard.names.size());
    heard.known.assign(heard.names.end() - static_cast<std::ptrdiff_t>(last), heard.names.end());
    return false;
  }
  const InputName name = name_of(message);
  const auto known =
      std::ranges::find_if(heard.known, [&name](const auto& one) { return same_words(one, name); });
  if (known != heard.known.end()) {
    heard.known.erase(known);
    return false;
  }
  ++heard.count;
  heard.names.push_back(name);
  if (heard.names.size() > kNamesMax) {
    heard.names.pop_front();
  }
  return true;
}

const std::vector<ActorId>& Hearing::copies_of(ActorId to) const {
  static const std::vector<ActorId> kNone;
  const auto found = copies_.find(to);
  return found == copies_.end() ? kNone : found->second;
}

ActorId Hearing::speaker_of(ActorId first) const {
  const auto found = heard_.find(first);
  return found == heard_.end() ? first : copies_of(first)[found->second.speaker];
}

void Hearing::archive(Archive& a) {
  for (auto& [first, heard] : heard_) {
    a(heard);
    expect_archived(heard.speaker < copies_of(first).size(), "no copy of a machine has spoken so");
  }
}

}  // namespace troupe
