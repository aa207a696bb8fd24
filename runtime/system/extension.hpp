// Machines of a program of one's own that join a cast: one that watches, one that steers. They hear
// what other machines do by overhear(), in Notes, and speak in messages that the others understand.
//
//   a machine of the cast, overheard --Note--> own machine --ScaleRate--> shards, servers
//
// An extension is chosen by extension.custom.name, like every scheme. Where one of its machines throws,
// the run ends.
#pragma once

#include "messages/peers.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"
#include "messages/servers.hpp"
#include "runtime/schemes/registry.hpp"
#include "runtime/system/machine.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// What an extension may do to the cast, before it plays.
struct ExtensionContext {
  Cast& cast;
  const proto::Experiment& experiment;              // resolved
  OptionValues options;                             // as extension.custom.values gives them
  std::vector<std::vector<Ref<StageRole>>> stages;  // by replica and stage: the last has the loss
  std::vector<std::vector<Ref<ShardRole>>> shards;  // by replica and chunk
  std::vector<std::vector<Ref<OptimizerRole>>> optimizers;  // likewise
  std::vector<Ref<ServerRole>> servers;                     // all; none: the replicas have none
};

struct ExtensionScheme {
  SchemeInfo info;  // chosen by extension.custom.name
  std::function<void(const ExtensionContext&)> join{};
};

/// Makes an extension known under its name. Before any experiment is checked. Error (usage) where the
/// name is taken or not in snake_case, or `join` is empty.
Result<void> register_extension(ExtensionScheme extension);

const Registry<ExtensionScheme>& extensions();

/// A machine of one's own, with handlers for what it is told: any of Start, Note, Alarm and
/// Ran<Computed> may be left to these.
template <class Self>
class ExtensionMachine : public Actor<Self, ExtensionRole> {
 public:
  void handle(const Start&, double /*now*/, Effects& /*fx*/) {}

  void handle(const Note&, double /*now*/, Effects& /*fx*/) {}

  void handle(const Alarm&, double /*now*/, Effects& /*fx*/) {}

  void handle(const Ran<Computed>&, double /*now*/, Effects& /*fx*/) {}

  std::string waits_for() const override { return ""; }
};

/// Adds a machine to the cast, on a thread of its own and on the CPU. `name`: as logs and errors have
/// it.
Ref<ExtensionRole> add_machine(Cast& cast, std::string name, std::unique_ptr<Machine> machine);

/// From now on `ear` is shown all that machine `who` does, each time that it has been told something:
/// what it sends (Effects::sends, such as an optimizer's Applied with the new weights) and what it
/// records (Effects::records, such as a head's LossRecord). It may add to it, Notes as a rule, and must
/// take nothing away. It is called on that machine's thread and is part of that machine: where it
/// throws, that machine dies.
void overhear(Cast& cast, ActorId who, std::function<void(double now, Effects& done)> ear);

}  // namespace troupe
