#include "runtime/system/extension.hpp"

#include <utility>

namespace troupe {
namespace {

Registry<ExtensionScheme>& table() {
  static Registry<ExtensionScheme> all({});
  return all;
}

class Overheard final : public Machine {
 public:
  using Ear = std::function<void(double, Effects&)>;

  Overheard(std::unique_ptr<Machine> machine, Ear ear)
      : machine_(std::move(machine)), ear_(std::move(ear)) {}

  void on(Message message, double now, Effects& effects) override {
    machine_->on(std::move(message), now, effects);
    ear_(now, effects);
  }

  std::string waits_for() const override { return machine_->waits_for(); }

  Remains remains() const override { return machine_->remains(); }

  void archive(Archive& a) override { machine_->archive(a); }

  RoleTag role() const override { return machine_->role(); }

 private:
  std::unique_ptr<Machine> machine_;
  Ear ear_;
};

}  // namespace

Result<void> register_extension(ExtensionScheme extension) {
  if (!extension.join) {
    return Error{ErrorKind::usage,
                 concat("register_extension: ", extension.info.name, " needs a function `join`")};
  }
  return table().add(std::move(extension), "register_extension");
}

const Registry<ExtensionScheme>& extensions() {
  return table();
}

Ref<ExtensionRole> add_machine(Cast& cast, std::string name, std::unique_ptr<Machine> machine) {
  const auto id = static_cast<ActorId>(cast.members.size());
  cast.members.push_back({.name = std::move(name),
                          .machine = std::move(machine),
                          .thread = cast.threads++,
                          .device = {}});
  cast.starting.push_back(id);
  return {id};
}

void overhear(Cast& cast, ActorId who, std::function<void(double now, Effects& done)> ear) {
  std::unique_ptr<Machine>& machine = cast.members.at(who).machine;
  machine = std::make_unique<Overheard>(std::move(machine), std::move(ear));
}

}  // namespace troupe
