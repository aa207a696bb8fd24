// How what travels on a link between a replica and a server, or between two servers, is compressed
// (replicas.codec). A Codec turns numbers into a message and back; a CodedLink is one end of a link, which
// remembers what its messages have left out.
#pragma once

#include "kernels/coding.hpp"
#include "kernels/random.hpp"
#include "kernels/result.hpp"
#include "kernels/stream.hpp"
#include "messages/proto.hpp"
#include "messages/update.hpp"
#include "runtime/schemes/registry.hpp"
#include "runtime/schemes/rules/rule.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe {

/// A message is of whole words, so that it travels as an int32 tensor: what is no message is float32.
using Words = std::span<const std::uint32_t>;

/// What a codec is made from: one for each slice and direction.
struct CodecContext {
  const proto::Codec& chosen;
  std::vector<RuleContext::Part> parts;  // tensors of the slice, in layer order
  std::int64_t elements = 0;             // n: of the slice, padding included
  std::int32_t replicas = 1;             // R
  bool feedback = false;                 // what a message leaves out goes with the next
  bool down = false;                     // of what servers answer
};

/// Encodes and decodes on the host, and where it has a `code` on GPUs too. Immutable: what it keeps from
/// one message to the next is its sender's LinkState. Every length and place in a message is a stranger's.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Changes an update before what was left out earlier is added to it.
  virtual void prepare(std::span<float> /*update*/, LinkState& /*state*/) const {}

  /// Appends the message of x, whose numbers are finite. `random` is this message's own: each of its
  /// indices may be drawn once.
  virtual void encode(std::span<const float> x,
                      LinkState& state,
                      const RandomStream& random,
                      std::vector<std::uint32_t>& message) const = 0;

  /// Called with what the message that was just encoded decodes to.
  virtual void sent(std::span<const float> /*decoded*/, LinkState& /*state*/) const {}

  /// Writes the message's n numbers to `out`; nullptr: the message is only looked through. Error
  /// (lost) where it is none of this codec's for n numbers; `out` has undefined contents then.
  virtual Result<void> read(Words message, std::int64_t n, float* out) const = 0;

  /// Numbers that it keeps at the sender besides the residual: LinkState::tensors[1], zeros at first.
  virtual std::int64_t kept() const { return 0; }

  /// What kernels make of `encode` and `read`, so that numbers on a GPU need not come to the host. It may
  /// point into the codec. Only of codecs without `prepare`, `sent` and `kept`. Empty: there is none.
  virtual std::optional<MessageCode> code(const RandomStream& /*random*/) const { return {}; }
};

class SumCode;  // summed_link.hpp

struct CodecScheme {
  SchemeInfo info;  // chosen by replicas.codec.up and down, or their custom.name
  std::string equations{};
  std::string bytes{};    // of a message, n the numbers
  std::string forgets{};  // what a message leaves out
  /// Empty: numbers travel as they are.
  std::function<std::unique_ptr<Codec>(const CodecContext&)> codec{};
  /// Whether what a message leaves out goes with the next where nobody says so. Empty: it does.
  std::function<bool(const proto::Codec&)> keeps{};
  /// It has a memory of its own at the sender, so that a message that is given up is missed for good.
  std::function<bool(const proto::Codec&)> remembers{};
  bool whole = false;  // makes sense of whole weights, not of differences alone
  /// What it leaves out can be greater than what it codes: kept for the next message, it would grow
  /// from message to message. Empty: it never is.
  std::function<bool(const proto::Codec&)> expands{};
  /// It is a momentum of the gradients: of `up` alone, where gradients travel and the servers' step
  /// has no momentum and no moments of its own. Weight decay goes through it, and not into that step.
  bool velocity = false;
  /// Of `velocity`: the norm that the gradient of a whole replica, one of so many, is clipped to before it is
  /// encoded; 0: it is not. Empty: it never is.
  std::function<double(const proto::Codec&, std::int64_t replicas)> clip_norm{};
  /// In an all-reduce (summed_link.hpp) a replica adds up messages and encodes the sum anew.
  bool recoded = false;
  /// ... or adds up numbers that are linear in the gradient. Empty: it does not.
  std::function<std::unique_ptr<SumCode>(const CodecContext&)> linear{};
  /// It is of gradients alone, and without feedback its messages are votes: a server steps by the sign of
  /// their sum, and has no momentum and no moments of its own.
  bool votes = false;

  /// Whether messages of it can be added up on their way.
  bool adds_up() const { return recoded || linear; }
};

/// Makes a codec known under its name. Before any experiment is checked. Error (usage) where the name
/// is taken or not in snake_case, or the factory `codec` is missing.
Result<void> register_codec(CodecScheme codec);

/// All of them, built in and registered.
const Registry<CodecScheme>& codecs();

/// The codec that a resolved experiment has chosen. ContractError where it is not registered.
const CodecScheme& codec_scheme(const proto::Codec& chosen);

/// Whether numbers travel as they are.
bool is_plain(const proto::Codec& chosen);

/// Whether what messages to the servers leave out is kept (replicas.codec.feedback).
bool keeps_residual(const proto::Codecs& codecs);

/// Whether the servers step by the sign of the sum of what replicas send.
bool takes_votes(const proto::Codecs& codecs);

/// Whether a message to the servers that is given up is missing for good: by a residual, or a memory of
/// the codec's own.
bool remembers_messages(const proto::Codecs& codecs);

/// Whether weight decay is in what replicas send (CodecScheme::velocity), so that the servers' step has none.
bool decays_at_replicas(const proto::Experiment& experiment);

/// The norm that a replica's gradient is clipped to: the least of optimizer.clip_norm and the codec's own; 0: none.
double clip_norm_of(const proto::Experiment& experiment);

/// Error (usage) with key, value and what would be right, where replicas.codec does not go with the
/// rest of the resolved experiment.
Result<void> check_codecs(const proto::Experiment& experiment);

/// The Codec that `context.chosen` names; empty where numbers travel as they are.
std::shared_ptr<const Codec> make_codec(const CodecContext& context);

/// One end of a link.
struct CodedLink {
  std::shared_ptr<const Codec> codec{};  // empty: numbers travel as they are
  bool feedback = false;
  std::uint64_t seed = 0;  // of what is drawn at random
  std::uint64_t name = 0;  // tells this link from all others
  double weight_decay =
      0;  // times the weights, added to a gradient before it is encoded (decays_at_replicas)

  explicit operator bool() const { return codec != nullptr; }

  /// The message for `scale` times `update`, and for what is left of earlier ones. Numbers that are not
  /// finite make a message that says so, and no other. The message is on the host; waits for the device.
  Tensor encode(Stream& stream, const Tensor& update, double scale, LinkState& state) const;
};

/// A link's name: of the replica's slice, or of the server's with replica -1. A group's server has its group in the
/// replica's place.
std::uint64_t link_name(std::int32_t replica, std::int32_t chunk, std::size_t slice);

/// Error (lost), a sentence's end, where `values` is not what `codec` makes of n numbers; without a
/// codec, where it is not n numbers.
Result<void> check_message(const Codec* codec, const Tensor& values, std::int64_t n);

/// The same on the host, without a stream.
Tensor decoded_on_host(const Codec& codec, const Tensor& message, std::int64_t n);

/// base and the differences behind it, in their order, on the host; each was checked.
Tensor caught_up(const Codec& codec, const Tensor& base, const std::vector<Tensor>& differences);

/// What servers answer goes through. Empty: it goes as it is.
struct DownLink {
  CodedLink link{};
  bool whole = false;  // whole weights; else what they have moved since the last version

  explicit operator bool() const { return static_cast<bool>(link); }

  /// `made` has been made from `base`: adds its difference, the message, and in place of what was to
  /// be sent what the replicas will have. `state`: tensors[2] is what they have; it was `base` at first.
  /// On the host.
  void encode(Stream& stream, const Tensor& base, Updated& made, LinkState& state) const;
};

/// The n numbers of a message that was checked, on the stream's device. ContractError where it is none.
Tensor decoded(Stream& stream, const Codec& codec, const Tensor& message, std::int64_t n);

}  // namespace troupe
