// What a server that does not decide by itself has been told to do with pushes, verdict by verdict.
#pragma once

#include "actors/server/replicas.hpp"
#include "messages/messages.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

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
