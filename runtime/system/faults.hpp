// What goes wrong on the virtual clock, by clock.faults and its seed: hosts that crash or freeze, links
// that are cut, packets that are lost, come twice or overtake one another.
//
//   machines of two hosts --message--> link: numbers, sends again --packets--> wire: loses, doubles, delays
//
// A link hands its messages over once each and in their order, as the channel of two processes does
// (runtime/cluster/README.md). So all that a machine sees of the wire is delay: message n is there when its
// first packet that comes through is there, and not before message n - 1. That time is computed when the
// message is sent; the packets themselves would show nothing more.
//
// A host that has crashed is there again clock.faults.crashes.back seconds later, with new links: nothing that
// was under way to it or from it comes. Host 0 has the Director. Who is silent to it for clock.faults.detection seconds is given up and does not
// come back; a host 0 that stood still itself counts from when it goes on.
#pragma once

#include "kernels/random.hpp"
#include "messages/proto.hpp"
#include "messages/stamp.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class Archive;

/// Whether anything is to go wrong.
bool any_faults(const proto::Faults& asked);

class Faults {
 public:
  /// What has happened.
  struct Counts {
    std::int64_t crashes = 0;
    std::int64_t back = 0;      // hosts that had crashed and are there again
    std::int64_t given_up = 0;  // hosts that were silent for too long
    std::int64_t freezes = 0;
    std::int64_t cuts = 0;
    std::int64_t packets_lost = 0;
    std::int64_t packets_doubled = 0;
  };

  struct Death {
    int host = 0;
    std::string cause;  // "host 2 has crashed"
  };

  /// `asked` fits the hosts. `experiment_seed`: where it has none of its own. `host_of`: by ActorId.
  Faults(const proto::Faults& asked,
         std::uint64_t experiment_seed,
         std::vector<int> host_of,
         int hosts);

  struct Happening {
    std::vector<Death> deaths{};
    std::vector<int> back{};  // hosts that had crashed and are there again
  };

  /// When the next thing happens to a host, seconds of the run's clock; infinity: never.
  double next() const;
  /// It does; whom it has concerned.
  Happening happen();

  int host_of(ActorId id) const { return host_of_[id]; }

  /// Whether messages between them pass a link.
  bool apart(ActorId a, ActorId b) const;

  bool dead(ActorId id) const { return hosts_[at(host_of_[id])].dead; }

  /// When its host goes on, where it stands still at `now`; else a time that is not after `now`.
  double frozen_until(ActorId id) const { return hosts_[at(host_of_[id])].frozen_until; }

  /// When a message is handed over that `from` sends at `now` and that takes `way` seconds by itself: once,
  /// or, where packets are not numbered, as often as a packet comes.
  std::vector<double> arrivals(ActorId from, ActorId to, double now, double way);

  const Counts& counts() const { return counts_; }

  /// All that changes, for checkpoints.
  void archive(Archive& a);

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// Times that are given or drawn, in their order.
  struct Course {
    struct Point {
      double at = 0;
      std::int64_t host = -1;   // -1: drawn
      std::int64_t other = -2;  // of a cut; -1: all others, -2: drawn
    };

    std::vector<Point> given{};  // by time
    double every = 0;            // mean seconds between two that are drawn; 0: none are
    RandomStream random{0, Purpose::duration};
    std::uint64_t drawn = 0;
    std::uint64_t taken = 0;  // of `given`
    double next_drawn = kNever;

    double next() const;
    Point take();
    void draw();
    void archive(Archive& a);
  };

  struct Host {
    bool dead = false;
    double frozen_until = 0;
    double silent_since = 0;  // for host 0
    double silent_until = 0;
  };

  struct Channel {
    std::uint64_t packets = 0;
    double last = 0;  // when the last message was handed over
  };

  static std::size_t at(int host) { return static_cast<std::size_t>(host); }

  Course course(const char* name, double every, std::vector<Course::Point> given) const;
  double given_up_at(int host) const;
  void expect();
  std::vector<Death> die(int host, const std::string& how);
  std::vector<Death> crash(const Course::Point& point);
  std::vector<int> come_back();
  double next_back() const;
  void freeze(const Course::Point& point);
  void cut(const Course::Point& point);
  void cut_between(int a, int b, double at);
  void silence(int host, double from, double until);
  int drawn_host(const Course& course, std::uint64_t which, int first) const;
  double cut_until(int a, int b) const;

  double detection_;
  double back_;
  double freeze_seconds_;
  double cut_seconds_;
  double loss_;
  double duplicates_;
  double delay_;
  double again_;
  bool numbered_;
  std::uint64_t seed_;
  std::vector<int> host_of_;  // by ActorId
  Course crashes_;
  Course freezes_;
  Course cuts_;
  std::vector<Host> hosts_;
  std::map<int, double> back_at_;  // by host that has crashed: when it is there again
  std::map<std::pair<int, int>, double> cut_until_;  // by the smaller host, the larger
  std::map<std::pair<int, int>, Channel> channels_;  // by sender, recipient
  double next_given_up_ = kNever;
  int whom_ = 0;  // is given up then
  Counts counts_;
};

}  // namespace troupe
