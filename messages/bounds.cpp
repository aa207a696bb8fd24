#include "messages/bounds.hpp"

#include "kernels/check.hpp"
#include "messages/archive.hpp"
#include "messages/for_each_field.hpp"
#include "messages/messages.hpp"
#include "messages/tensor_bytes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>

namespace troupe {
namespace {

constexpr std::int64_t kUpdatesMax = 100'000;  // that a push may stand for
constexpr std::int64_t kRoundsMax = 1'000'000;
constexpr std::int64_t kAmountMax = std::int64_t{1} << 50;
constexpr std::int64_t kPeriodMax = 2'000'000'000;  // twice what an experiment may ask for

/// What each field of a T may hold, as the struct says. Nothing where it says nothing of its fields.
template <class T>
constexpr auto field_bounds() {
  if constexpr (requires { T::kFacts.bounds; }) {
    return T::kFacts.bounds;
  } else {
    return nullptr;
  }
}

template <class T>
constexpr bool is_ref = false;
template <class Role>
constexpr bool is_ref<Ref<Role>> = true;

template <class T>
constexpr bool has_bounds = !std::is_null_pointer_v<decltype(field_bounds<T>())>;

/// Holds one message or record to its facts.
class Visitor {
 public:
  /// `from`: who has said it; nothing: anyone.
  Visitor(const RunBounds& bounds, std::string_view what, std::optional<ActorId> from)
      : b_(bounds), what_(what), from_(from) {}

  /// Each field of a struct that has facts.
  template <class T>
  void fields(const T& x) {
    static constexpr auto kBounds = field_bounds<T>();
    static_assert(kBounds.size() == kFieldsOf<T>, "each field of the struct has a bound");
    for_each_field(x, [this](const auto& field, std::size_t i) { value(field, kBounds[i]); });
  }

 private:
  template <class T>
  void value(const std::vector<T>& all, Bound bound) {
    if (bound == Bound::by_replica) {
      expect(all.size() == static_cast<std::size_t>(b_.replicas), "other replicas than there are");
      return;
    }
    expect(bound != Bound::some || !all.empty(), "an empty field that must not be empty");
    coded_ = coded_ || bound == Bound::coded;
    const bool struct_like = bound == Bound::some || bound == Bound::coded;
    for (const T& one : all) {
      value(one, struct_like ? Bound::inside : bound);
    }
    coded_ = coded_ && bound != Bound::coded;
  }

  void value(const std::vector<bool>& all, Bound bound) {
    expect(bound != Bound::by_replica || all.size() == static_cast<std::size_t>(b_.replicas),
           "other replicas than there are");
  }

  template <class T>
  void value(const std::optional<T>& x, Bound bound) {
    if (x) {
      value(*x, bound);
    }
  }

  template <class Role>
  void value(const Ref<Role>& x, Bound /*bound*/) {
    expect(from_ ? x.id == *from_ : x.id < b_.actors, "a reply to another machine than its sender");
  }

  void value(const std::string& text, Bound bound) {
    expect(bound != Bound::text || text.size() <= kTextMax, "a text that is too long");
  }

  void value(const char* /*text*/, Bound /*bound*/) {}

  void value(const Tensor& x, Bound bound) { tensor(x, bound); }

  void value(const NamedTensor& entry, Bound bound) { sample(entry, bound); }

  template <class T>
  void value(const T& x, Bound bound) {
    if constexpr (std::is_floating_point_v<T>) {
      real(x, bound);
    } else if constexpr (std::is_enum_v<T>) {
      enumerator(static_cast<std::int64_t>(x), bound);
    } else if constexpr (std::is_same_v<T, bool>) {
      // either
    } else if constexpr (std::is_integral_v<T>) {
      constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
      const bool beyond = std::is_unsigned_v<T> && static_cast<std::uint64_t>(x) > kMost;
      whole(beyond ? kMost : static_cast<std::int64_t>(x), bound);
    } else if constexpr (has_bounds<T>) {
      if (bound != Bound::any) {
        fields(x);
      }
    } else {
      static_assert(std::is_same_v<T, void>, "a field of a kind that is not known here");
    }
  }

  void whole(std::int64_t x, Bound bound) {
    switch (bound) {
      case Bound::replica:
        return in(x, 0, b_.replicas, "a replica that the run does not have");
      case Bound::group:
        return in(x, -1, b_.replicas, "a group that the run does not have");
      case Bound::chunk:
        chunk_ = static_cast<std::size_t>(x);
        return in(x, 0, b_.chunks, "a chunk that the run does not have");
      case Bound::slice:
        return in(x, 0, static_cast<std::int64_t>(b_.slices), "a slice that no chunk has");
      case Bound::stage:
        return in(
            x, 0, std::int64_t{b_.stages} * b_.replicas, "a stage that the run does not have");
      case Bound::actor:
        return in(
            x, 0, static_cast<std::int64_t>(b_.actors), "an actor that the run does not have");
      case Bound::round:
        return in(x, 0, kRoundsMax, "a micro-batch that does not exist");
      case Bound::batch:
        return in(x, 0, b_.batches, "a mini-batch that does not exist");
      case Bound::count:
        return in(x, 0, b_.most, "an impossible number");
      case Bound::amount:
        return in(x, 0, kAmountMax, "an impossible amount");
      case Bound::period:
        return in(x, 0, std::max(b_.most, kPeriodMax), "an impossible period");
      case Bound::one_or_more:
        return in(x, 1, b_.most, "an impossible number");
      case Bound::count_or_not:
        return in(x, -1, b_.most, "an impossible number");
      case Bound::push:
        in(x, 0, b_.most, "an impossible number of mini-batches");
        return expect(x / kUpdatesMax <= b_.mini_batches, "more mini-batches than a push has", x);
      case Bound::index:
        return in(
            x, 0, static_cast<std::int64_t>(Kinds::size), "a kind of message that does not exist");
      default:
        return;
    }
  }

  void enumerator(std::int64_t x, Bound bound) {
    if (bound == Bound::reach) {
      in(x,
         0,
         static_cast<std::int64_t>(ReachKind::displacement) + 1,
         "a prediction of a kind that does not exist");
    }
  }

  void real(double x, Bound bound) {
    const bool asked = bound == Bound::number || bound == Bound::seconds || bound == Bound::share ||
                       bound == Bound::rate;
    expect(!asked || std::isfinite(x), "a number that is not finite");
    expect(bound != Bound::rate || (x >= 0 && x <= b_.rate),
           "a learning rate that the run does not have");
    expect(bound != Bound::share || (x >= 0 && x <= 1), "a share that is not from 0 to 1");
    expect(bound != Bound::seconds || x >= 0, "a time before the run");
  }

  void tensor(const Tensor& x, Bound bound) {
    switch (bound) {
      case Bound::nothing:
        return expect(!x, "a value that only the recipient may fill in");
      case Bound::weights:
        return expect(!x || coded_ || (x.type() == DType::float32 && is_slice(x.elements())),
                      "weights or gradients of no slice");
      case Bound::message:
        return expect(!x || x.shape().dimensions() > 0, "a tensor without an extent");
      case Bound::labels:
      case Bound::labels_or_not:
        return labels(x, bound);
      case Bound::losses:
        return numbers(x, 2, "a loss that is not two numbers");
      case Bound::lessons:
        return numbers(x, 5, "a lesson that is not five numbers");
      default:
        return;
    }
  }

  void numbers(const Tensor& x, std::int64_t count, const char* what) {
    expect(x && x.type() == DType::float64 && x.elements() == count, what);
  }

  bool is_slice(std::int64_t elements) const {
    const auto has = [elements](const std::vector<std::int64_t>& chunk) {
      return std::find(chunk.begin(), chunk.end(), elements) != chunk.end();
    };
    return b_.elements.empty() || std::any_of(b_.elements.begin(), b_.elements.end(), has);
  }

  bool has_rows(const Tensor& x) const {
    return x.shape().dimensions() > 0 && x.shape()[0] > 0 && x.shape()[0] <= b_.rows;
  }

  void labels(const Tensor& x, Bound bound) {
    if (!x) {
      return expect(bound == Bound::labels_or_not, "no labels");
    }
    expect(has_rows(x), "labels of no samples, or of more than a batch has");
    expect(b_.classes == 0 || x.type() == DType::int32, "labels that are no classes");
    classes(x);
  }

  /// Kernels look them up.
  void classes(const Tensor& x) {
    if (x.type() != DType::int32 || x.device().kind != DeviceKind::cpu || b_.classes == 0) {
      return expect(x.type() != DType::float64, "labels or samples of the wrong type");
    }
    const auto* const all = reinterpret_cast<const std::int32_t*>(bytes_of(x).data());
    expect(
        std::all_of(
            all, all + x.elements(), [this](std::int32_t k) { return k >= 0 && k < b_.classes; }),
        "a class or a token that does not exist");
  }

  /// An entry of a bundle.
  void sample(const NamedTensor& entry, Bound bound) {
    const Tensor& x = entry.tensor;
    expect(static_cast<bool>(x) && has_rows(x), "no samples, or more than a batch has");
    classes(x);
    const std::vector<SampleShapes>& all = bound == Bound::error ? b_.outputs : b_.inputs;
    if (chunk_ >= all.size()) {
      return;
    }
    const auto known = all[chunk_].find(entry.name);
    const auto fits = [&x](const Shape& of_sample) {
      bool equal = x.shape().dimensions() == of_sample.dimensions() + 1;
      for (int i = 0; equal && i < of_sample.dimensions(); ++i) {
        equal = x.shape()[i + 1] == of_sample[i];
      }
      return equal;
    };
    expect(
        known != all[chunk_].end() && std::any_of(known->second.begin(), known->second.end(), fits),
        "samples of another shape than the chunk's");
  }

  void in(std::int64_t x, std::int64_t first, std::int64_t end, const char* what) const {
    expect(x >= first && x < end, what, x);
  }

  void expect(bool sound, const char* what, std::optional<std::int64_t> x = {}) const {
    if (!sound) {
      throw ArchiveError(
          concat(what_, " tells of ", what, x ? concat(" (", *x, ")") : std::string()));
    }
  }

  const RunBounds& b_;
  std::string_view what_;
  std::optional<ActorId> from_;
  std::size_t chunk_ = 0;  // that was named last
  bool coded_ = false;
};

std::string named(const Message& message) {
  const std::string name(message_name(message));
  const bool vowel = std::string_view("AEIOU").find(name.front()) != std::string_view::npos;
  return concat(vowel ? "an " : "a ", name);
}

void check(const Message& message, const RunBounds& bounds, ActorId to) {
  const bool again = bounds.are_copies(message.from, to);
  const auto from = again ? std::nullopt : std::optional(bounds.first_of(message.from));
  visit(
      [&]<class M>(const M& m) {
        if constexpr (has_bounds<M>) {
          Visitor(bounds, named(message), from).fields(m);
        }
      },
      message);
}

std::uint32_t by_whom(const Message& message) {
  return visit([]<class M>(const M&) { return M::kFacts.by_whom; }, message);
}

}  // namespace

void check_message_bounds(const Message& message, const RunBounds& bounds, ActorId to) {
  if (by_whom(message) == 0) {
    throw ArchiveError(
        concat(named(message), " has come from another process, which must not send it"));
  }
  check(message, bounds, to);
}

void check_may_say(const Message& message, const RoleTag& sender) {
  if (!std::holds_alternative<AnyRole>(sender) && (by_whom(message) >> sender.index() & 1U) == 0) {
    throw ArchiveError(concat(named(message), " has come from a machine that must not send any"));
  }
}

void check_kept_bounds(const Message& message, const RunBounds& bounds, ActorId to) {
  check(message, bounds, to);
}

bool is_answered_to(const Message& message, ActorId id) {
  return visit(
      [id]<class M>(const M& m) {
        bool all = true;
        if constexpr (has_bounds<M>) {
          for_each_field(m, [&]<class T>(const T& field, std::size_t) {
            if constexpr (is_ref<T>) {
              all = all && field.id == id;
            }
          });
        }
        return all;
      },
      message);
}

void check_record(const RecordEntry& record, const RunBounds& bounds) {
  std::visit([&]<class R>(const R& r) { Visitor(bounds, "a record", kOutside).fields(r); },
             static_cast<const RecordEntry::variant&>(record));
}

}  // namespace troupe
