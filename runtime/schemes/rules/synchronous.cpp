// Who makes an update where replicas wait for each other: all of them, all but a few (backup
// workers, Chen et al. 2016, arXiv:1604.00981), or a quorum and whoever comes soon after
// (diloco's mode quorum).
#include "experiment.pb.h"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <set>

namespace troupe {
namespace {

bool alive(const Ledger& ledger, std::int32_t replica) {
  return ledger.replicas.at(static_cast<std::size_t>(replica)).alive;
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
    std::set<std::int32_t> from;
    std::set<std::int32_t> here;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (!accepts(waiting[i], ledger)) {
        choice.drop.push_back(i);  // came while the update that it missed was being made
        continue;
      }
      if (!from.insert(waiting[i].replica).second) {
        continue;
      }
      choice.take.push_back(i);
      if (alive(ledger, waiting[i].replica)) {
        here.insert(waiting[i].replica);
      }
    }
    const std::int64_t living = ledger.living();
    const auto wanted = std::min(living, std::max<std::int64_t>(1, living - backup_));
    if (static_cast<std::int64_t>(here.size()) < wanted) {
      choice.take.clear();
    }
    return choice;
  }

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
    std::set<std::int32_t> here;
    std::int64_t living_here = 0;
    double met = std::numeric_limits<double>::infinity();
    for (const Arrival& push : waiting) {
      if (here.insert(push.replica).second && alive(ledger, push.replica)) {
        ++living_here;
      }
      if (static_cast<std::int64_t>(here.size()) >= wanted) {
        met = std::min(met, push.time);
      }
    }
    if (living_here == living || now >= met + grace_) {
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        choice.take.push_back(i);
      }
    } else {
      choice.ask_again = met + grace_;
    }
    return choice;
  }

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
