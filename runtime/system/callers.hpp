// Around machines that speak with machines that have copies (copied.hpp), and know nothing of that.
#pragma once

#include "runtime/system/copied.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// What its machine says to the first copy goes to all. What comes from the head is passed on once and acknowledged.
class Caller : public Machine {
 public:
  Caller(const std::vector<Copies>& all, std::unique_ptr<Machine> machine);

  void on(Message message, double now, Effects& effects) override;
  void archive(Archive& a) override;

  std::string waits_for() const override { return machine_->waits_for(); }

  Remains remains() const override { return machine_->remains(); }

  RoleTag speaks_as() const override { return machine_->speaks_as(); }

  Machine& core() override { return machine_->core(); }

 protected:
  /// Hands `message` to the machine.
  void pass_on(Message message, double now, Effects& fx);

 private:
  Hearing hearing_;
  std::unique_ptr<Machine> machine_;
};

/// Around the Director, who is told what is lost: the others hear which copies of theirs are left, and who else is gone. The
/// Director hears of a copy only where it was the last.
class Census final : public Caller {
 public:
  Census(std::vector<Copies> all, std::unique_ptr<Machine> machine);

  void on(Message message, double now, Effects& effects) override;
  void archive(Archive& a) override;

 private:
  bool survives(const Down& m, Effects& fx);
  void tell_all(const CopyWord& word, Effects& fx) const;

  std::vector<Copies> all_;
  std::vector<std::vector<bool>> alive_;  // by household and copy
  std::uint64_t change_ = 0;              // of what is left
};

/// Copies of machines of `cast`, which were made alike, become such: each copy is wrapped, and so are the Director and all
/// others, who may speak with them.
void join_copies(Cast& cast, std::vector<Copies> all);

}  // namespace troupe
