#include "runtime/system/spoken.hpp"

#include "messages/record_archive.hpp"
#include "runtime/system/inbox.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

/// Calls f with those of `all` that follow from inputs behind `first`, up to `last`.
template <class T, class F>
void for_each_of(std::deque<T>& all, std::uint64_t first, std::uint64_t last, F f) {
  auto one = std::partition_point(
      all.begin(), all.end(), [first](const T& x) { return x.input <= first; });
  for (; one != all.end() && one->input <= last; ++one) {
    f(*one);
  }
}

}  // namespace

void Spoken::note(std::uint64_t input, Effects::Send send) {
  heard_.try_emplace(send.to, 0);
  said_.push_back({.input = input,
                   .to = send.to,
                   .modelled = send.modelled,
                   .message = std::move(send.message)});
}

void Spoken::note(std::uint64_t input, RecordEntry entry) {
  entry.teller = self_;
  entry.number = ++records_;
  recorded_.push_back({.input = input, .entry = std::move(entry)});
}

/// Of several of that name the first: those keep their order.
void Spoken::heard(ActorId by, const InputName& name) {
  ++heard_[by];
  const auto found = std::find_if(said_.begin(), said_.end(), [&](const Said& one) {
    return one.to == by && !one.heard && same_words(name_of(one.message), name);
  });
  if (found == said_.end()) {
    return;
  }
  if (begun_ && found->input > released_) {
    found->heard = true;
  } else {
    said_.erase(found);
  }
}

void Spoken::forget(ActorId by) {
  heard_.erase(by);
  std::erase_if(said_, [by](const Said& one) { return one.to == by; });
}

void Spoken::say(std::uint64_t confirmed, Effects& fx) {
  for_each_of(said_, released_, confirmed, [&fx](const Said& one) {
    fx.pass_on(one.to, one.message, one.modelled);
  });
  for_each_of(
      recorded_, released_, confirmed, [&fx](const Recorded& one) { fx.record(one.entry); });
  std::erase_if(said_,
                [confirmed](const Said& one) { return one.heard && one.input <= confirmed; });
  released_ = confirmed;
  while (recorded_.size() > kRecordsMax && recorded_.front().input <= released_) {
    recorded_.pop_front();
  }
}

void Spoken::keep_quiet() {
  while (recorded_.size() > kRecordsMax) {
    recorded_.pop_front();
  }
}

void Spoken::begin(Effects& fx) {
  begun_ = true;
  for (const auto& [to, number] : heard_) {
    fx.pass_on(to, CopyWord{.kind = CopyWord::Kind::resumes, .number = number}, false);
  }
}

void Spoken::Said::archive(Archive& a) {
  a(input, to, modelled, heard);
  message.archive(a);
}

void Spoken::Recorded::archive(Archive& a) {
  a(input);
  troupe::archive(a, entry);
}

void Spoken::archive(Archive& a) {
  a(records_, said_, heard_, recorded_, released_, begun_);
}

}  // namespace troupe
