// Around machines that speak with machines that have copies (copied.hpp), and know nothing of that.
#pragma once

#include "runtime/system/copied.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// What its machine says to the first copy goes to all. What comes from the head is passed on once and acknowledged.
class Caller : public Machine {
 public:
  /// Names that are kept: more than acknowledgements can be on their way.
  static constexpr std::size_t kNamesMax = 1024;

  Caller(std::vector<Copies> all, std::unique_ptr<Machine> machine);

  void on(Message message, double now, Effects& effects) override;
  void archive(Archive& a) override;

  std::string waits_for() const override { return machine_->waits_for(); }

  Remains remains() const override { return machine_->remains(); }

  RoleTag speaks_as() const override { return machine_->speaks_as(); }

 protected:
  /// Hands `message` to the machine.
  void pass_on(Message message, double now, Effects& fx);

  /// To all copies, in their order.
  static void tell(const Copies& copies, const CopyWord& word, Effects& fx);

  const std::vector<Copies>& all() const { return all_; }

 private:
  /// From a machine that has copies.
  struct Heard {
    std::uint32_t speaker = 0;      // the copy that has spoken last: those before it are given up
    std::uint64_t count = 0;        // of what was passed on
    std::deque<InputName> names{};  // of the last of these
    std::deque<InputName> known{};  // of these: what the speaker has yet to say again
  };

  bool is_news(const Message& message, std::size_t machine, std::uint32_t copy);

  std::vector<Copies> all_;
  std::unique_ptr<Machine> machine_;
  std::map<ActorId, std::pair<std::size_t, std::uint32_t>> places_;  // machine and copy
  std::map<ActorId, std::size_t> firsts_;                            // which machine's first copy
  std::vector<Heard> heard_;                                         // by machine
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

  std::vector<std::vector<bool>> alive_;  // by machine and copy
  std::uint64_t change_ = 0;              // of what is left
};

/// Copies of machines of `cast`, which were made alike, become such: each copy, the Director and `callers`, who are all
/// others that speak with them, are wrapped.
void join_copies(Cast& cast, const std::vector<Copies>& all, const std::vector<ActorId>& callers);

}  // namespace troupe
