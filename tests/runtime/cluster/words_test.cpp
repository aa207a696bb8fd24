// What may be said at what time of a run, and by whom: every kind of parcel.
#include "runtime/cluster/words.hpp"

#include "tests/support/catch.hpp"

#include <set>
#include <string>

namespace words_test {

using namespace troupe;

namespace {

constexpr Moment kRunning{.halt = 3, .question = 2, .processes = 4};

Parcel word(ParcelKind kind, std::uint32_t number = 1) {
  return {.kind = kind, .recipient = number};
}

std::string refusal(const Parcel& parcel, const Moment& now) {
  try {
    check_word_of_node(parcel, now);
  } catch (const WireError& error) {
    return error.what();
  }
  return "";
}

std::string refusal_at_node(const Parcel& parcel, const Moment& now, bool from_lead) {
  try {
    check_word_to_node(parcel, now, from_lead);
  } catch (const WireError& error) {
    return error.what();
  }
  return "";
}

std::set<ParcelKind> all_kinds() {
  std::set<ParcelKind> all;
  for (std::uint32_t kind = 0; kind < kParcelKinds; ++kind) {
    all.insert(static_cast<ParcelKind>(kind));
  }
  return all;
}

}  // namespace

TEST_CASE("a node says goodbye when it has heard the end of the run, and nothing after that") {
  CHECK(refusal(word(ParcelKind::bye), kRunning) ==
        "a process says goodbye before the end of the run");
  Moment ended = kRunning;
  ended.ended = true;
  CHECK(refusal(word(ParcelKind::bye), ended).empty());
  ended.left = true;
  for (const ParcelKind kind : all_kinds()) {
    CHECK_FALSE(refusal(word(kind), ended).empty());
  }
}

TEST_CASE("a node tells of halts and questions that have been, and of processes that there are") {
  using enum ParcelKind;
  for (const ParcelKind kind : {rested, state}) {
    CHECK(refusal(word(kind, 3), kRunning).empty());
    CHECK(refusal(word(kind, 4), kRunning).find("that nobody has asked for") != std::string::npos);
    CHECK_FALSE(refusal(word(kind, 0), kRunning).empty());
  }
  CHECK(refusal(word(explained, 2), kRunning).empty());
  CHECK_FALSE(refusal(word(explained, 3), kRunning).empty());
  CHECK(refusal(word(distrust, 3), kRunning).empty());
  CHECK_FALSE(refusal(word(distrust, 0), kRunning).empty());
  CHECK_FALSE(refusal(word(distrust, 4), kRunning).empty());
}

TEST_CASE("each kind of word has its speaker") {
  using enum ParcelKind;
  const std::set<ParcelKind> of_lead{gone, explain, end, halt, go_on};
  const std::set<ParcelKind> of_nodes{records, heartbeat, down, explained, bye, distrust, trace};
  for (const ParcelKind kind : all_kinds()) {
    CHECK((refusal(word(kind), kRunning) ==
           "a process sends a parcel that only the lead may send") == of_lead.contains(kind));
    CHECK((refusal_at_node(word(kind), kRunning, true) ==
           "a process sends a parcel that only the lead may get") == of_nodes.contains(kind));
    const bool of_any = kind == message || kind == rested;
    CHECK(refusal_at_node(word(kind), kRunning, false).empty() == of_any);
  }
}

TEST_CASE("a node hears each halt once, the end once, and a state before it begins alone") {
  using enum ParcelKind;
  Moment now = kRunning;
  CHECK(refusal_at_node(word(halt, 4), now, true).empty());
  CHECK(refusal_at_node(word(halt, 3), now, true) == "the lead says a halt that has been");
  CHECK_FALSE(refusal_at_node(word(state, 1), now, true).empty());
  now.begins = true;
  CHECK(refusal_at_node(word(state, 1), now, true).empty());
  CHECK(refusal_at_node(word(end), now, true).empty());
  now.ended = true;
  CHECK(refusal_at_node(word(end), now, true) ==
        "the lead says the end of the run after the end of the run");
  CHECK_FALSE(refusal_at_node(word(gone, 4), now, true).empty());
}

}  // namespace words_test
