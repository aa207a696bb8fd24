#include "runtime/schemes/codecs/codec.hpp"

#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/codes.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/codecs/built_in.hpp"
#include "runtime/schemes/codecs/device_link.hpp"
#include "runtime/schemes/codecs/host_memory.hpp"
#include "runtime/schemes/codecs/summed_link.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace troupe {
namespace {

Registry<CodecScheme>& table() {
  static Registry<CodecScheme> all(codec_schemes::built_in());
  return all;
}

std::string name_of(const proto::Codec& chosen) {
  const std::string kind = choice_name(chosen);
  return kind.empty() ? "none" : kind == "custom" ? chosen.custom().name() : kind;
}

Tensor message_of(const std::vector<std::uint32_t>& words) {
  Tensor message = host_tensor(static_cast<std::int64_t>(words.size()), DType::int32);
  std::copy(
      words.begin(), words.end(), reinterpret_cast<std::uint32_t*>(message.data<std::int32_t>()));
  return message;
}

/// The codec of what replicas send, where it is a velocity; else nullptr. One that is not registered is refused later.
const CodecScheme* velocity_of(const proto::Experiment& experiment) {
  const CodecScheme* const up = table().find(name_of(sections::replicas(experiment).codec().up()));
  return up && up->velocity ? up : nullptr;
}

/// Of a message on the host, which is of words.
Words words_of(const Tensor& message) {
  return {reinterpret_cast<const std::uint32_t*>(message.data<std::int32_t>()),
          static_cast<std::size_t>(message.elements())};
}

/// What is drawn for the next message.
RandomStream drawn(const CodedLink& link, const LinkState& state) {
  RandomStream random(link.seed, Purpose::sample, link.name);
  random.key = random.bits(static_cast<std::uint64_t>(state.messages));
  return random;
}

bool says_not_finite(Words words) {
  return words.size() == 1 && words.front() == kNotFinite;
}

}  // namespace

Result<void> register_codec(CodecScheme codec) {
  if (!codec.codec) {
    return usage_error("register_codec: {} needs a factory `codec`", codec.info.name);
  }
  return table().add(std::move(codec), "register_codec");
}

const Registry<CodecScheme>& codecs() {
  return table();
}

const CodecScheme& codec_scheme(const proto::Codec& chosen) {
  const std::string name = name_of(chosen);
  const CodecScheme* const found = codecs().find(name);
  TROUPE_CHECK(found, "no codec '", name, "'");
  return *found;
}

bool is_plain(const proto::Codec& chosen) {
  return !codec_scheme(chosen).codec;
}

bool keeps_residual(const proto::Codecs& codecs) {
  const CodecScheme& scheme = codec_scheme(codecs.up());
  if (!scheme.codec || codecs.feedback() != proto::Codecs::by_codec) {
    return scheme.codec && codecs.feedback() == proto::Codecs::on;
  }
  return !scheme.keeps || scheme.keeps(codecs.up());
}

bool takes_votes(const proto::Codecs& codecs) {
  return codec_scheme(codecs.up()).votes && !keeps_residual(codecs);
}

bool remembers_messages(const proto::Codecs& codecs) {
  const CodecScheme& scheme = codec_scheme(codecs.up());
  return keeps_residual(codecs) || (scheme.remembers && scheme.remembers(codecs.up()));
}

bool decays_at_replicas(const proto::Experiment& experiment) {
  return velocity_of(experiment) != nullptr;
}

double clip_norm_of(const proto::Experiment& experiment) {
  const proto::Replicas& replicas = sections::replicas(experiment);
  const double own = sections::optimizer(experiment).clip_norm();
  const CodecScheme* const velocity = velocity_of(experiment);
  const double bound = velocity && velocity->clip_norm
                           ? velocity->clip_norm(replicas.codec().up(), replicas.count())
                           : 0;
  return own == 0 || (bound > 0 && bound < own) ? bound : own;
}

std::shared_ptr<const Codec> make_codec(const CodecContext& context) {
  const CodecScheme& scheme = codec_scheme(context.chosen);
  if (!scheme.codec) {
    return nullptr;
  }
  TROUPE_CHECK(context.elements <= 0x7fffffff,
               "a slice of ",
               context.elements,
               " numbers is too large for replicas.codec, whose places have 31 bits; more "
               "replicas.shards make it smaller");
  std::shared_ptr<const Codec> made = scheme.codec(context);
  TROUPE_CHECK(made, "codec ", scheme.info.name, ": its factory made nothing");
  return made;
}

Tensor CodedLink::encode(Stream& stream,
                         const Tensor& update,
                         double scale,
                         LinkState& state) const {
  const RandomStream random = drawn(*this, state);
  const bool device = stream.device().kind != DeviceKind::cpu;
  if (const auto code = device ? codec->code(random) : std::nullopt) {
    return encode_on_device(*code, feedback, stream, update, scale, state);
  }
  const std::int64_t n = update.elements();
  begin_link(state, n, codec->kept(), feedback);
  const Tensor here = on_host(stream, update);
  const Tensor held = host_tensor(n, DType::float32);
  const std::span<float> x = held.span<float>();
  if (!codes::add_left(here.data<float>(), static_cast<float>(scale), nullptr, x.data(), n)) {
    return message_of({kNotFinite});
  }
  codec->prepare(x, state);
  if (feedback) {  // a checkpoint may have put it on a device
    state.tensors[0] = on_host(stream, state.tensors[0]);
  }
  float* const left = feedback ? state.tensors[0].data<float>() : nullptr;
  if (left && !codes::add_left(x.data(), 1, left, x.data(), n)) {
    return message_of({kNotFinite});
  }
  thread_local std::vector<std::uint32_t> message;  // its memory is used again
  message.clear();
  codec->encode(x, state, random, message);
  ++state.messages;
  const Tensor out = host_tensor(n, DType::float32);
  const Result<void> sound = codec->read(message, n, out.data<float>());
  TROUPE_CHECK(sound, "a codec does not understand its own message: ", sound.error().message);
  codec->sent(out.span<float>(), state);
  if (left) {
    codes::left_of(x.data(), out.data<float>(), left, n);
  }
  return message_of(message);
}

std::uint64_t link_name(std::int32_t replica, std::int32_t chunk, std::size_t slice) {
  return mix(mix(mix(static_cast<std::uint64_t>(replica)) ^ static_cast<std::uint64_t>(chunk)) ^
             static_cast<std::uint64_t>(slice));
}

Result<void> check_message(const Codec* codec, const Tensor& values, std::int64_t n) {
  const DType right = codec ? DType::int32 : DType::float32;
  if (values.type() != right) {
    return lost_error("it is of {} where {} is right", to_string(values.type()), to_string(right));
  }
  if (!codec) {
    if (values.elements() != n) {
      return lost_error("it has {} numbers where {} are right", values.elements(), n);
    }
    return {};
  }
  if (values.device().kind != DeviceKind::cpu) {
    return Error{ErrorKind::lost, "it is not in the host's memory"};
  }
  values.ready().wait();
  return says_not_finite(words_of(values)) ? Result<void>{}
                                           : codec->read(words_of(values), n, nullptr);
}

Tensor decoded_on_host(const Codec& codec, const Tensor& message, std::int64_t n) {
  thread_local Stream host{Device{}};
  return decoded(host, codec, message, n);
}

Tensor caught_up(const Codec& codec, const Tensor& base, const std::vector<Tensor>& differences) {
  const std::int64_t n = base.elements();
  Tensor out = host_tensor(n, DType::float32);
  std::copy_n(base.data<float>(), n, out.data<float>());
  for (const Tensor& difference : differences) {
    const Tensor moved = decoded_on_host(codec, difference, n);
    codes::add_scaled(1, moved.data<float>(), out.data<float>(), n);
  }
  return out;
}

void DownLink::encode(Stream& stream, const Tensor& base, Updated& made, LinkState& state) const {
  TROUPE_CHECK(made.answers.empty(),
               "[Step] answers each replica with weights of its own, and replicas.codec.down is "
               "for weights that all of them have. A rule whose step does says so by "
               "RuleScheme::answers_each, and is refused with such a codec before the run");
  const Tensor target = made.sent ? made.sent : made.next;
  if (whole) {
    made.difference = link.encode(stream, target, 1, state);
    made.sent = decoded(stream, *link.codec, made.difference, target.elements());
    return;
  }
  const Tensor had = state.tensors.size() > 2 ? state.tensors[2] : base;
  const std::int64_t n = target.elements();
  Tensor moved = host_tensor(n, DType::float32);
  std::copy_n(target.data<float>(), n, moved.data<float>());
  codes::subtract(moved.data<float>(), had.data<float>(), n);
  made.difference = link.encode(stream, moved, 1, state);
  made.sent = caught_up(*link.codec, had, {made.difference});
  state.tensors.resize(3);
  state.tensors[2] = made.sent;
}

Tensor decoded(Stream& stream, const Codec& codec, const Tensor& message, std::int64_t n) {
  message.ready().wait();
  const bool device = stream.device().kind != DeviceKind::cpu;
  if (device && !says_not_finite(words_of(message))) {
    constexpr RandomStream kNone(0, Purpose::sample);  // a message is read without what was drawn
    if (const auto code = codec.code(kNone)) {
      return decoded_on_device(*code, stream, message, n);
    }
  }
  Tensor out = device ? host_tensor(n, DType::float32) : stream.allocate({n});
  if (says_not_finite(words_of(message))) {
    std::fill_n(out.data<float>(), n, std::bit_cast<float>(kNotFinite));
  } else {
    const Result<void> sound = codec.read(words_of(message), n, out.data<float>());
    TROUPE_CHECK(sound, "a message was not checked: ", sound.error().message);
  }
  return on_device(stream, out);
}

}  // namespace troupe
