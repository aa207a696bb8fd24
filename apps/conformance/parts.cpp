// Whether an optimizer or a codec keeps what the runtime promises of it.
#include "apps/conformance/kits.hpp"
#include "apps/conformance/replicas.hpp"
#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::conformance {
namespace {

// -- codecs -----------------------------------------------------------------------------------------

class CodecKit {
 public:
  CodecKit(const CodecScheme& scheme, const ConformanceOptions& options)
      : scheme_(scheme),
        set_(with(choose("replicas.codec.up", codecs(), scheme, options.values),
                  {concat("replicas.count=", kReplicas), "clock.workers.spread=0.6"})) {
    if (scheme.velocity || scheme.votes) {
      set_.push_back("optimizer.rule=sgd");
    }
  }

  Result<std::vector<Finding>> run() {
    const auto made = replicas_blueprint(set_);
    TROUPE_TRY(made);
    chosen_ = sections::replicas(made->experiment).codec();
    return std::vector<Finding>{caught("messages", [&] { return messages(); }),
                                caught("strangers", [&] { return strangers(); }),
                                two_equal_replicas(set_),
                                resumes(set_)};
  }

 private:
  static constexpr std::int64_t kSizes[] = {1, 31, 64, 1000, 4097};

  CodedLink link(std::int64_t n) const {
    return {.codec = make_codec({.chosen = chosen_.up(),
                                 .parts = {{.name = "w", .offset = 0, .shape = {n}}},
                                 .elements = n,
                                 .replicas = kReplicas,
                                 .feedback = keeps_residual(chosen_)}),
            .feedback = keeps_residual(chosen_),
            .seed = 1,
            .name = 1};
  }

  Finding messages() const {
    Stream stream{Device{}};
    double words = 0;
    double numbers = 0;
    for (const std::int64_t n : kSizes) {
      LinkState state[2];
      for (std::uint64_t number = 0; number < 3; ++number) {
        std::vector<float> x = drawn(n, number);
        if (number == 2) {
          std::fill(x.begin(), x.end(), 0.0f);
        }
        const Tensor update = from_host(stream, x, {n});
        const CodedLink here = link(n);
        const Tensor one = here.encode(stream, update, 1, state[0]);
        const Tensor other = here.encode(stream, update, 1, state[1]);
        const auto a = one.span<std::int32_t>();
        const auto b = other.span<std::int32_t>();
        if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) {
          return {"messages", false, concat("of the same ", n, " numbers two messages differ")};
        }
        for (const float value : decoded_on_host(*here.codec, one, n).span<float>()) {
          if (!std::isfinite(value)) {
            return {"messages", false, concat("of ", n, " numbers one is not finite any more")};
          }
        }
        words += static_cast<double>(a.size());
        numbers += static_cast<double>(n);
      }
    }
    return {"messages",
            true,
            fill_in("each is understood, and the same of the same numbers; {} % of their size",
                    std::round(100 * words / numbers))};
  }

  /// Messages that are none, or of other numbers: they may be refused, and must not end the process.
  Finding strangers() const {
    Stream stream{Device{}};
    std::int64_t looked_at = 0;
    std::int64_t refused = 0;
    for (const std::int64_t n : kSizes) {
      LinkState state;
      const CodedLink here = link(n);
      const Tensor sound = here.encode(stream, from_host(stream, drawn(n, 1), {n}), 1, state);
      const auto words = sound.span<std::int32_t>();
      for (std::size_t i = 0; i <= words.size(); i += 1 + words.size() / 16) {
        for (const std::uint32_t wrong : {0u, 0x7fffffffu, 0xffffffffu}) {
          std::vector<std::uint32_t> message(words.begin(), words.end());
          i < message.size() ? message[i] = wrong : message.emplace_back(wrong);
          std::vector<float> out(static_cast<std::size_t>(n));
          refused += here.codec->read(message, n, out.data()) ? 0 : 1;
          message.resize(i);
          refused += here.codec->read(message, n, out.data()) ? 0 : 1;
          looked_at += 2;
        }
      }
    }
    return {
        "strangers",
        refused > 0,
        concat("of ", looked_at, " messages that were changed or cut ", refused, " are refused")};
  }

  const CodecScheme& scheme_;
  Assignments set_;
  proto::Codecs chosen_;
};

// -- optimizers -------------------------------------------------------------------------------------

class OptimizerKit {
 public:
  OptimizerKit(const OptimizerScheme& scheme, const ConformanceOptions& options)
      : scheme_(scheme), set_(choose(optimizer_assignment(scheme), options.values)) {}

  Result<std::vector<Finding>> run() {
    const auto made = replicas_blueprint(set_);
    TROUPE_TRY(made);
    values_ = OptionValues(scheme_.info.options, sections::optimizer(made->experiment).custom());
    std::vector<Finding> all;
    for (const auto& [name, check] : {std::pair{"padding", &OptimizerKit::padding},
                                      std::pair{"in place", &OptimizerKit::in_place},
                                      std::pair{"pieces", &OptimizerKit::pieces}}) {
      all.push_back(scheme_.method.update
                        ? caught(name, [&, of = check] { return (this->*of)(); })
                        : Finding{name, true, "a kernel of the program moves the weights", false});
    }
    all.push_back(two_equal_replicas(set_));
    all.push_back(resumes(set_));
    return all;
  }

 private:
  static constexpr std::int64_t kAll = 96;
  static constexpr std::int64_t kUsed = 64;  // the rest is padding

  struct Made {
    std::vector<double> w, direction;
    std::vector<std::vector<double>> moments;
    bool operator==(const Made&) const = default;
  };

  /// Three updates of the numbers from `begin` to `end`.
  Made updated(std::int64_t begin, std::int64_t end, bool in_place) const {
    Stream stream{Device{}};
    const auto part = [&](std::uint64_t name) {
      std::vector<float> x = drawn(kAll, name);
      std::fill(x.begin() + kUsed, x.end(), 0.0f);
      return from_host(
          stream, std::vector<float>(x.begin() + begin, x.begin() + end), {end - begin});
    };
    UpdateTensors t{.w = part(0), .g = {}, .w_new = {}, .moments = {}};
    for (int i = 0; i < scheme_.method.moments; ++i) {
      t.moments.push_back(from_host(
          stream, std::vector<float>(static_cast<std::size_t>(end - begin)), {end - begin}));
    }
    Made made;
    for (std::uint64_t update = 1; update <= 3; ++update) {
      t.g = part(update);
      t.w_new = in_place ? t.w : stream.allocate({end - begin});
      const UpdateNumbers numbers{.update = static_cast<std::int64_t>(update),
                                  .rate = 0.01,
                                  .gradient_scale = 0.5,
                                  .momentum = 0.9,
                                  .beta2 = 0.99,
                                  .epsilon = 1e-8,
                                  .weight_decay = 0.1};
      made.direction = to_host(scheme_.method.update(stream, numbers, values_, t));
      t.w = t.w_new;
    }
    made.w = to_host(t.w);
    for (const Tensor& moment : t.moments) {
      made.moments.push_back(to_host(moment));
    }
    return made;
  }

  Finding padding() const {
    const Made made = updated(0, kAll, false);
    const auto stays = [](const std::vector<double>& x) {
      return std::all_of(x.begin() + kUsed, x.end(), [](double value) { return value == 0; });
    };
    const bool all = stays(made.w) && stays(made.direction) &&
                     std::all_of(made.moments.begin(), made.moments.end(), stays);
    return {
        "padding", all, concat("what is 0 at the start ", all ? "stays" : "does not stay", " 0")};
  }

  Finding in_place() const {
    const bool same = updated(0, kAll, false) == updated(0, kAll, true);
    return {"in place", same, concat(same ? "the same" : "something else", " where w_new is w")};
  }

  Finding pieces() const {
    if (scheme_.matrices) {
      return {"pieces", true, "each parameter is moved by itself", false};
    }
    Made both = updated(0, kUsed / 2, false);
    const Made second = updated(kUsed / 2, kAll, false);
    both.w.insert(both.w.end(), second.w.begin(), second.w.end());
    const bool same = both.w == updated(0, kAll, false).w;
    return {"pieces",
            same,
            same ? "the same weights wherever a slice is cut"
                 : "the weights depend on where a slice is cut, and so on replicas.shards"};
  }

  const OptimizerScheme& scheme_;
  Assignments set_;
  OptionValues values_;
};

}  // namespace

Result<std::vector<Finding>> check_codec_conformance(const CodecScheme& scheme,
                                                     const ConformanceOptions& options) {
  if (!scheme.codec) {
    return Error{ErrorKind::usage, concat("conformance: ", scheme.info.name, " codes nothing")};
  }
  return CodecKit(scheme, options).run();
}

Result<std::vector<Finding>> check_optimizer_conformance(const OptimizerScheme& scheme,
                                                         const ConformanceOptions& options) {
  return OptimizerKit(scheme, options).run();
}

}  // namespace troupe::conformance
