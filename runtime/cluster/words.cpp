#include "runtime/cluster/words.hpp"

#include "kernels/check.hpp"

#include <array>
#include <limits>

namespace troupe {
namespace {

enum class Speaker : std::uint8_t {
  node,      // to the lead
  lead,      // to a node
  everyone,  // to everyone
};

enum class When : std::uint8_t {
  always,
  before_the_end,
  at_the_end,  // when the lead has said that the run is over
};

/// What Parcel::recipient names.
enum class Number : std::uint8_t {
  any,        // nothing, or what is checked where it is known
  halt,       // that the lead has asked for
  next_halt,  // ... or that it asks for now
  question,   // that the lead has asked
  process,    // of the run, but the lead
};

struct Word {
  ParcelKind kind;
  const char* name;
  Speaker speaker;
  When when;
  Number number;
};

constexpr std::array<Word, kParcelKinds> kWords{{
    {ParcelKind::message, "a message", Speaker::everyone, When::always, Number::any},
    {ParcelKind::records, "records", Speaker::node, When::always, Number::any},
    {ParcelKind::heartbeat, "a heartbeat", Speaker::node, When::always, Number::any},
    {ParcelKind::down, "the end of a machine", Speaker::node, When::always, Number::any},
    {ParcelKind::gone, "the loss of a process", Speaker::lead, When::always, Number::process},
    {ParcelKind::explain, "a question", Speaker::lead, When::before_the_end, Number::any},
    {ParcelKind::explained, "an answer", Speaker::node, When::always, Number::question},
    {ParcelKind::end, "the end of the run", Speaker::lead, When::before_the_end, Number::any},
    {ParcelKind::bye, "goodbye", Speaker::node, When::at_the_end, Number::any},
    {ParcelKind::distrust, "distrust", Speaker::node, When::always, Number::process},
    {ParcelKind::halt, "a halt", Speaker::lead, When::before_the_end, Number::next_halt},
    {ParcelKind::rested, "that it rests", Speaker::everyone, When::always, Number::halt},
    {ParcelKind::state, "what machines keep", Speaker::everyone, When::always, Number::halt},
    {ParcelKind::go_on, "the end of a halt", Speaker::lead, When::always, Number::any},
    {ParcelKind::trace, "a piece of a trace", Speaker::node, When::at_the_end, Number::any},
}};

const Word& word_of(const Parcel& parcel) {
  const Word& word = kWords.at(static_cast<std::size_t>(parcel.kind));
  TROUPE_CHECK(word.kind == parcel.kind, "[cluster] the words stand in another order");
  return word;
}

void expect(bool sound, const char* who, const Word& word, const char* why) {
  if (!sound) {
    throw WireError(concat(who, " says ", word.name, ' ', why));
  }
}

void check(const Parcel& parcel, const Word& word, const Moment& now, const char* who) {
  const std::uint32_t n = parcel.recipient;
  expect(!now.left, who, word, "after its goodbye");
  expect(word.when != When::before_the_end || !now.ended, who, word, "after the end of the run");
  expect(word.when != When::at_the_end || now.ended, who, word, "before the end of the run");
  switch (word.number) {
    case Number::any:
      return;
    case Number::halt:
      return expect(n >= 1 && n <= now.halt, who, word, "for a halt that nobody has asked for");
    case Number::next_halt:
      return expect(n > now.halt, who, word, "that has been");
    case Number::question:
      return expect(n >= 1 && n <= now.question, who, word, "that nobody has asked for");
    case Number::process:
      return expect(n >= 1 && n < now.processes, who, word, "of a process that does not exist");
  }
}

}  // namespace

void check_word_of_node(const Parcel& parcel, const Moment& now) {
  const Word& word = word_of(parcel);
  if (word.speaker == Speaker::lead) {
    throw WireError("a process sends a parcel that only the lead may send");
  }
  check(parcel, word, now, "a process");
}

void check_word_to_node(const Parcel& parcel, const Moment& now, bool from_lead) {
  const Word& word = word_of(parcel);
  if (word.speaker == Speaker::node) {
    throw WireError("a process sends a parcel that only the lead may get");
  }
  // What machines keep goes to the lead, or comes from there.
  if (!from_lead && (word.speaker == Speaker::lead || parcel.kind == ParcelKind::state)) {
    throw WireError("a process sends a parcel that only the lead may send");
  }
  expect(parcel.kind != ParcelKind::state || now.begins, "the lead", word, "in the midst of a run");
  // What others say of a halt may be here before the lead's own word.
  Moment known = now;
  if (parcel.kind == ParcelKind::rested || parcel.kind == ParcelKind::state) {
    known.halt = std::numeric_limits<std::uint32_t>::max();
  }
  check(parcel, word, known, from_lead ? "the lead" : "a process");
}

}  // namespace troupe
