// Where servers could decide apart, one decides for all and sends the others its verdicts: what it
// sends, and what the others have been told to do with pushes, verdict by verdict.
//
// A gradient is taken or dropped as a whole. The server that decides is one of the last chunk: pushes
// of a backward pass come there first. All that a verdict names is then on its way to the others, for
// which nothing is needed but what earlier verdicts have given. So none waits for ever, and a server
// may stand still only where it decides (Pins).
#pragma once

#include "actors/server/replicas.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// The push `m` as a verdict names it.
inline Verdict::Push named(const Upload& m) {
  return {.replica = m.stamp.replica, .batch = m.stamp.batch, .life = m.life};
}

/// Sends what a server decides for others.
class VerdictSender {
 public:
  /// `followers` do as this server says; none where each decides by itself.
  explicit VerdictSender(std::vector<Ref<ServerRole>> followers)
      : followers_(std::move(followers)) {}

  bool has_followers() const { return !followers_.empty(); }

  /// Numbers the verdict and sends it to all.
  void tell(Verdict verdict, Effects& fx);

  void archive(auto& a) { a(told_); }

 private:
  std::vector<Ref<ServerRole>> followers_;
  std::uint64_t told_ = 0;  // number of the last
};

/// The pushes of a verdict by their place among those that wait. A push that a replica died without
/// sending has none.
struct Found {
  std::vector<std::size_t> take;
  std::vector<std::size_t> drop;
};

class Verdicts {
 public:
  void add(Verdict m) { all_.insert_or_assign(m.number, std::move(m)); }

  /// The verdict whose turn it is, or null: it has not come.
  const Verdict* next() const {
    return all_.empty() || all_.begin()->first != carried_out_ + 1 ? nullptr
                                                                   : &all_.begin()->second;
  }

  /// It has been carried out.
  void pop() {
    all_.erase(all_.begin());
    ++carried_out_;
  }

  /// None of them matters any more.
  void clear() { all_.clear(); }

  void archive(auto& a) { a(all_, carried_out_); }

 private:
  std::map<std::uint64_t, Verdict> all_;  // by number
  std::uint64_t carried_out_ = 0;
};

/// The pushes that `verdict` names, among those that wait. Nothing while one of a living replica is
/// still on its way.
std::optional<Found> find_pushes(const Verdict& verdict,
                                 const std::deque<Upload>& waiting,
                                 const Replicas& replicas);

}  // namespace troupe
