// Does the arithmetic of one server: the Scale and the Step of its rule, one update at a time.
//
//   server --Combine--> server optimizer --Combined--> server
//
// Invariants: one job is out at a time (a second Combine is a bug of the server); updates are made
// in the order of their versions.
#pragma once

#include "messages/results.hpp"
#include "messages/servers.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/codecs/majority.hpp"
#include "runtime/schemes/rules/rule.hpp"
#include "runtime/system/machine.hpp"

#include <memory>
#include <optional>

namespace troupe {

class ServerOptimizer final : public Actor<ServerOptimizer, ServerOptimizerRole> {
 public:
  struct Config {
    std::int32_t stage = 0;        // whose modelled time an update takes
    std::int64_t parameters = 1;   // of the slice, without padding: what a gap is the mean over
    std::shared_ptr<Scale> scale;  // used by one job at a time
    std::shared_ptr<Step> step;
    std::shared_ptr<const Codec> up{};  // what contributions come through; empty: none
    DownLink down{};                    // what is answered goes through
    CodedLink above{};                  // what a group has moved goes up through; it has no `down`
    std::optional<Majority> votes{};    // contributions are votes
  };

  explicit ServerOptimizer(Config config) : c_(std::move(config)) {}

  void handle(Combine m, double now, Effects& fx);
  void handle(Ran<CombineMade> m, double now, Effects& fx);

  void archive(Archive& a) override;

  /// What it makes its steps with, while none is made; else null.
  Step* step() const { return c_.step.get(); }

  std::string waits_for() const override { return at_work_ ? "its own kernel" : ""; }

 private:
  Config c_;
  std::optional<Ref<ServerRole>> at_work_;
  LinkState link_;  // of `down` or `above`
};

}  // namespace troupe
