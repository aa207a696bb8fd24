// Who makes an update where replicas wait for each other: all of them, all but a few (backup
// workers, Chen et al. 2016, arXiv:1604.00981), or a quorum and whoever comes soon after
// (diloco's mode quorum).
#include "experiment/replicas.pb.h"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <vector>

namespace troupe {
namespace {

bool alive(const Ledger& ledger, std::int32_t replica) {
  return ledger.replicas.at(static_cast<std::size_t>(replica)).alive;
}

/// Of its replica among those that have been looked at.
bool first_of(const Arrival& push, std::vector<bool>& seen) {
  const auto who = static_cast<std::size_t>(push.replica);
  const bool first = !seen.at(who);
  seen[who] = true;
  return first;
}

class AllTogether final : public Admission {
 public:
  explicit AllTogether(std::int64_t backup) : backup_(backup) {}

  /// Where all are waited for, nobody can be late: what a pipeline reads of an older version is its
  /// own delay.
  bool accepts(const Arrival& push, const Ledger& ledger) const override {
    return backup_ == 0 || push.read_version >= ledger.version;
  }

  bool servers_may_differ() const override { return backup_ > 0; }

  /// What the dead have left counts in the mean, but not among those who are waited for. One push of each, the
  /// first: where no answer is waited for (streams), a fast replica's next one may come before a slow one's first,
  /// and belongs to the next update all the same.
  Choice choose(const std::vector<Arrival>& waiting,
                const Ledger& ledger,
                double /*now*/) const override {
    Choice choice;
    std::vector<bool> seen(ledger.replicas.size());
    std::int64_t here = 0;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (!accepts(waiting[i], ledger)) {
        choice.drop.push_back(i);  // came while the update that it missed was being made
        continue;
      }
      if (!first_of(waiting[i], seen)) {
        continue;
      }
      choice.take.push_back(i);
      here += alive(ledger, waiting[i].replica) ? 1 : 0;
    }
    const std::int64_t living = ledger.living();
    const auto wanted = std::min(living, std::max<std::int64_t>(1, living - backup_));
    if (here < wanted) {
      choice.take.clear();
      choice.more = static_cast<std::size_t>(wanted - here);
    }
    return choice;
  }

  std::int64_t answers_by(const Ledger& /*ledger*/) const override { return 0; }

 private:
  std::int64_t backup_;
};

class Quorum final : public Admission {
 public:
  explicit Quorum(const proto::QuorumDiloco& options)
      : quorum_(options.quorum()), grace_(options.grace()) {}

  /// Who is in time for an update is each server's own matter.
  bool servers_may_differ() const override { return true; }

  Choice choose(const std::vector<Arrival>& waiting,
                const Ledger& ledger,
                double now) const override {
    const std::int64_t living = ledger.living();
    const std::int64_t majority = living / 2 + 1;
    const std::int64_t wanted = std::min(living, quorum_ > 0 ? quorum_ : majority);
    Choice choice;
    std::vector<bool> seen(ledger.replicas.size());
    std::int64_t here = 0;
    std::int64_t living_here = 0;
    double met = std::numeric_limits<double>::infinity();
    for (const Arrival& push : waiting) {
      if (first_of(push, seen)) {
        ++here;
        living_here += alive(ledger, push.replica) ? 1 : 0;
      }
      if (here >= wanted) {
        met = std::min(met, push.time);
      }
    }
    if (living_here == living || now >= met + grace_) {
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        choice.take.push_back(i);
      }
    } else {
      choice.ask_again = met + grace_;
      choice.more = static_cast<std::size_t>(std::max<std::int64_t>(0, wanted - here));
    }
    return choice;
  }

  std::int64_t answers_by(const Ledger& /*ledger*/) const override { return 0; }

 private:
  std::int64_t quorum_;
  double grace_;
};

}  // namespace

std::unique_ptr<Admission> all_together(std::int64_t backup) {
  return std::make_unique<AllTogether>(backup);
}

std::unique_ptr<Admission> quorum(const proto::QuorumDiloco& options) {
  return std::make_unique<Quorum>(options);
}

}  // namespace troupe
