#include "actors/exchange/gradient_sum.hpp"

#include "actors/exchange/link_states.hpp"
#include "actors/pipeline/optimizer_parts.hpp"
#include "kernels/combine.hpp"
#include "kernels/wording.hpp"
#include "messages/bad_sender.hpp"

namespace troupe {
namespace {

// Its jobs; those of the exchange that it is a part of have other names.
constexpr const char* kEncode = ":encode";
constexpr const char* kAdd = ":add";
constexpr const char* kJoin = ":join";

std::int64_t numbers_of(const std::vector<Tensor>& segment) {
  std::int64_t n = 0;
  for (const Tensor& part : segment) {
    n += part.elements();
  }
  return n;
}

}  // namespace

GradientSum::GradientSum(Config config)
    : c_(std::move(config)),
      plan_(plan_all_reduce(c_.how, c_.replica, static_cast<std::int32_t>(c_.peers.size()))) {}

void GradientSum::begin(const Stamp& stamp,
                        std::vector<Tensor> gradient,
                        TiedGradients tied,
                        Effects& fx,
                        std::int32_t round) {
  TROUPE_CHECK(!active(), "a second sum of gradients while one is under way");
  does_ = Does::waits;
  stamp_ = stamp;
  first_round_ = round * plan_.rounds;
  next_ = 0;
  segments_.clear();
  if (tied.empty()) {
    cut(gradient, fx);
    advance(fx);
    return;
  }
  add(std::move(gradient), std::move(tied), {}, fx);
}

void GradientSum::add(std::vector<Tensor> gradient,
                      TiedGradients tied,
                      std::vector<Tensor> theirs,
                      Effects& fx) {
  does_ = Does::works;
  run_computed(fx,
               stamp_,
               kAdd,
               [links = c_.recodes,
                numbers = std::move(gradient),
                tied = std::move(tied),
                theirs = std::move(theirs)](Stream& stream) {
                 add_tied(stream, tied, numbers);
                 for (std::size_t s = 0; s < theirs.size(); ++s) {
                   const std::int64_t n = numbers[s].elements();
                   if (n > 0) {
                     const Tensor part = links.empty()
                                             ? here(stream, theirs[s])
                                             : decoded(stream, *links[s].codec, theirs[s], n);
                     combine(stream, {{1, part}, {1, numbers[s]}}, numbers[s]);
                   }
                 }
                 return Computed{.tensors = numbers};
               });
}

/// The segments, one behind the other, over the number of replicas.
void GradientSum::join(Effects& fx) {
  does_ = Does::joins;
  run_computed(fx,
               stamp_,
               kJoin,
               [links = c_.recodes,
                segments = std::exchange(segments_, {}),
                sizes = sizes_,
                factor = 1.0 / static_cast<double>(c_.peers.size())](Stream& stream) {
                 Computed made;
                 for (std::size_t s = 0; s < sizes.front().size(); ++s) {
                   std::int64_t n = 0;
                   for (const std::vector<std::int64_t>& of : sizes) {
                     n += of[s];
                   }
                   made.tensors.push_back(stream.allocate({n}));
                   std::int64_t offset = 0;
                   for (std::size_t i = 0; i < segments.size(); ++i) {
                     const std::int64_t size = sizes[i][s];
                     if (size > 0) {
                       const Tensor& x = segments[i][s];
                       const Tensor part = links.empty()
                                               ? here(stream, x)
                                               : decoded(stream, *links[s].codec, x, size);
                       combine(stream, {{factor, part}}, made.tensors[s].view(offset, {size}));
                     }
                     offset += size;
                   }
                 }
                 return made;
               });
}

void GradientSum::cut(const std::vector<Tensor>& gradient, Effects& fx) {
  segments_.resize(static_cast<std::size_t>(plan_.segments));
  for (std::int32_t i = 0; i < plan_.segments; ++i) {
    for (const Tensor& slice : gradient) {
      const std::int64_t first = segment_begin(slice.elements(), plan_.segments, i);
      const std::int64_t end = segment_begin(slice.elements(), plan_.segments, i + 1);
      segments_[static_cast<std::size_t>(i)].push_back(slice.view(first, {end - first}));
    }
  }
  sizes_.clear();
  for (const std::vector<Tensor>& segment : segments_) {
    std::vector<std::int64_t>& sizes = sizes_.emplace_back();
    for (const Tensor& x : segment) {
      sizes.push_back(x.elements());
    }
  }
  if (!c_.recodes.empty()) {  // its messages are counted when they are sent
    states_.resize(segments_.size(), std::vector<LinkState>(gradient.size()));
    return;
  }
  TrafficRecord traffic{.replica = stamp_.replica, .chunk = stamp_.chunk};
  for (const Move& move : plan_.moves) {
    if (move.act == Move::Act::send) {
      traffic.bytes += 4 * numbers_of(segments_[static_cast<std::size_t>(move.segment)]);
    }
  }
  fx.record(traffic);
}

void GradientSum::came(GradientPart part, Effects& fx) {
  const Key key{part.stamp.batch, part.stamp.micro_batch, part.stamp.replica};
  if (key < Key{stamp_.batch, first_round_, 0}) {
    return;  // once more
  }
  parts_[key] = std::move(part);
  if (does_ == Does::waits) {
    advance(fx);
  }
}

void GradientSum::advance(Effects& fx) {
  for (; next_ < plan_.moves.size(); ++next_) {
    const Move& move = plan_.moves[next_];
    std::vector<Tensor>& segment = segments_[static_cast<std::size_t>(move.segment)];
    if (move.act == Move::Act::send) {
      if (!c_.recodes.empty() && !coded(segment)) {
        encode(move.segment, fx);
        return;
      }
      if (!c_.recodes.empty()) {
        fx.record(TrafficRecord{
            .replica = stamp_.replica, .chunk = stamp_.chunk, .bytes = 4 * numbers_of(segment)});
      }
      Stamp stamp = stamp_;
      stamp.micro_batch = first_round_ + move.round;
      fx.send(c_.peers[static_cast<std::size_t>(move.peer)],
              GradientPart{.stamp = stamp, .segment = move.segment, .tensors = segment});
      continue;
    }
    auto part = parts_.extract({stamp_.batch, first_round_ + move.round, move.peer});
    if (part.empty()) {
      return;
    }
    expect_of(move,
              part.mapped().segment == move.segment,
              fill_in("segment {} of the gradient of mini-batch {} came where {} is due",
                      part.mapped().segment,
                      stamp_.batch,
                      move.segment));
    check_part(move, part.mapped().tensors);
    if (move.act == Move::Act::add) {
      add(std::move(segment), {}, std::move(part.mapped().tensors), fx);
      return;
    }
    segment = std::move(part.mapped().tensors);
  }
  join(fx);
}

bool GradientSum::job_done(Computed& m, Effects& fx) {
  TROUPE_CHECK(working(), "a sum of gradients that nobody asked for");
  if (std::exchange(does_, Does::waits) == Does::joins) {
    does_ = Does::nothing;
    parts_.erase(parts_.begin(),
                 parts_.lower_bound({stamp_.batch, first_round_ + plan_.rounds, 0}));
    return true;
  }
  if (m.what == kEncode) {
    const auto at = static_cast<std::size_t>(plan_.moves[next_].segment);
    states_.at(at) = unpack(m, c_.recodes.size());
    m.tensors.resize(c_.recodes.size());
    segments_.at(at) = std::move(m.tensors);
  } else if (segments_.empty()) {
    cut(m.tensors, fx);
  } else {
    segments_[static_cast<std::size_t>(plan_.moves[next_].segment)] = std::move(m.tensors);
    ++next_;
  }
  advance(fx);
  return false;
}

// -- with a codec ----------------------------------------------------------------------------------

/// Whether it is of messages: as it was encoded here, or came complete.
bool GradientSum::coded(const std::vector<Tensor>& segment) const {
  return !segment.empty() && segment.front().type() == DType::int32;
}

void GradientSum::encode(std::int32_t segment, Effects& fx) {
  const auto at = static_cast<std::size_t>(segment);
  does_ = Does::works;
  run_computed(fx,
               stamp_,
               kEncode,
               [links = c_.recodes,
                numbers = std::exchange(segments_[at], {}),
                states = std::exchange(states_[at], {})](Stream& stream) mutable {
                 Computed made;
                 for (std::size_t s = 0; s < numbers.size(); ++s) {
                   made.tensors.push_back(links[s].encode(stream, numbers[s], 1, states[s]));
                 }
                 for (LinkState& state : states) {
                   pack(std::move(state), made);
                 }
                 return made;
               });
}

/// Of a part that may have been kept for long, so that its sender is not who is heard now.
void GradientSum::expect_of(const Move& move, bool sound, const std::string& why) const {
  if (!sound) {
    throw BadSender(why, c_.peers[static_cast<std::size_t>(move.peer)].id);
  }
}

/// That what has come is as many messages of the codec, or numbers, as are due. Whoever has sent it may
/// be in another process.
void GradientSum::check_part(const Move& move, const std::vector<Tensor>& messages) const {
  const std::vector<std::int64_t>& sizes = sizes_[static_cast<std::size_t>(move.segment)];
  const std::size_t slices = sizes.size();
  const auto start = [&] {
    return fill_in("replica {} has sent an unusable part of the gradient of mini-batch {}: ",
                   move.peer,
                   stamp_.batch);
  };
  expect_of(move,
            messages.size() == slices,
            concat(start(), "it is of ", messages.size(), " slices where ", slices, " are right"));
  for (std::size_t s = 0; s < slices; ++s) {
    const Codec* const codec = c_.recodes.empty() ? nullptr : c_.recodes[s].codec.get();
    const Result<void> sound = messages[s] ? check_message(codec, messages[s], sizes[s])
                                           : Error{ErrorKind::lost, "it has nothing"};
    expect_of(move, static_cast<bool>(sound), sound ? "" : start() + sound.error().message);
  }
}

std::string GradientSum::waits_for() const {
  if (working() || next_ >= plan_.moves.size()) {
    return "its own sum of gradients";
  }
  return fill_in("a part of the gradient of mini-batch {} from replica {}",
                 stamp_.batch,
                 plan_.moves[next_].peer);
}

}  // namespace troupe
