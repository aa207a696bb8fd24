#include "runtime/system/faults.hpp"

#include "experiment/clock.pb.h"
#include "kernels/check.hpp"
#include "messages/archive.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace troupe {
namespace {

RandomStream stream_of(std::uint64_t seed, std::string_view name, std::uint64_t which = 0) {
  return {seed, Purpose::duration, mix(name_key(name.data(), name.size()) ^ which)};
}

double exponential(const RandomStream& random, std::uint64_t index, double mean) {
  return -mean * std::log(1 - random.uniform(index));
}

}  // namespace

bool any_faults(const proto::Faults& f) {
  const proto::Wire& wire = f.wire();
  return f.crashes().every() > 0 || f.crashes().at_size() > 0 || f.freezes().every() > 0 ||
         f.freezes().at_size() > 0 || f.cuts().every() > 0 || f.cuts().at_size() > 0 ||
         wire.loss() > 0 || wire.duplicates() > 0 || wire.delay() > 0;
}

// -- when ------------------------------------------------------------------------------------------

double Faults::Course::next() const {
  return taken < given.size() ? std::min(given[taken].at, next_drawn) : next_drawn;
}

Faults::Course::Point Faults::Course::take() {
  if (taken < given.size() && given[taken].at <= next_drawn) {
    return given[taken++];
  }
  const Point point{.at = next_drawn};
  draw();
  return point;
}

/// Counter 3 i is the time before the i-th, the two behind it are whom it befalls.
void Faults::Course::draw() {
  const double before = next_drawn == kNever ? 0 : next_drawn;
  next_drawn = before + exponential(random, 3 * drawn, every);
  ++drawn;
}

void Faults::Course::archive(Archive& a) {
  a(drawn, taken, next_drawn);
}

Faults::Course Faults::course(const char* name,
                              double every,
                              std::vector<Course::Point> given) const {
  std::ranges::stable_sort(given, [](const auto& x, const auto& y) { return x.at < y.at; });
  Course made{.given = std::move(given), .every = every, .random = stream_of(seed_, name)};
  if (every > 0) {
    made.draw();
  }
  return made;
}

namespace {

/// The i-th of a list, where there is one.
template <class List>
std::int64_t listed(const List& list, int i, std::int64_t otherwise) {
  return i < list.size() ? list[i] : otherwise;
}

}  // namespace

Faults::Faults(const proto::Faults& asked,
               std::uint64_t experiment_seed,
               std::vector<int> host_of,
               int hosts)
    : detection_(asked.detection()),
      back_(asked.crashes().back()),
      freeze_seconds_(asked.freezes().seconds()),
      cut_seconds_(asked.cuts().seconds()),
      loss_(asked.wire().loss()),
      duplicates_(asked.wire().duplicates()),
      delay_(asked.wire().delay()),
      again_(asked.wire().again()),
      numbered_(asked.wire().numbered()),
      seed_(asked.seed() == 0 ? experiment_seed : asked.seed()),
      host_of_(std::move(host_of)),
      hosts_(at(hosts)) {
  const auto points = [](const auto& of, auto other) {
    std::vector<Course::Point> all;
    for (int i = 0; i < of.at_size(); ++i) {
      all.push_back({.at = of.at(i), .host = listed(of.host(), i, -1), .other = other(i)});
    }
    return all;
  };
  const auto none = [](int) -> std::int64_t {
    return -2;
  };
  const auto other = [&](int i) {
    return listed(asked.cuts().other(), i, -2);
  };
  const bool several = hosts > 1;
  crashes_ = course("crash", several ? asked.crashes().every() : 0, points(asked.crashes(), none));
  freezes_ = course("freeze", asked.freezes().every(), points(asked.freezes(), none));
  cuts_ = course("cut", several ? asked.cuts().every() : 0, points(asked.cuts(), other));
}

// -- what befalls hosts ----------------------------------------------------------------------------

double Faults::next() const {
  return std::min({next_given_up_, next_back(), crashes_.next(), freezes_.next(), cuts_.next()});
}

Faults::Happening Faults::happen() {
  const double time = next();
  Happening what;
  if (time == next_given_up_) {
    ++counts_.given_up;
    what.deaths = die(whom_, "was silent for too long");
  } else if (time == next_back()) {
    what.back = come_back();
  } else if (time == crashes_.next()) {
    what.deaths = crash(crashes_.take());
  } else if (time == freezes_.next()) {
    freeze(freezes_.take());
  } else {
    cut(cuts_.take());
  }
  expect();
  return what;
}

std::vector<Faults::Death> Faults::crash(const Course::Point& point) {
  const int host = point.host >= 0 ? static_cast<int>(point.host) : drawn_host(crashes_, 1, 1);
  std::vector<Death> deaths = die(host, "has crashed");
  if (!deaths.empty()) {
    ++counts_.crashes;
    if (back_ > 0) {
      back_at_[host] = point.at + back_;
    }
  }
  return deaths;
}

double Faults::next_back() const {
  double first = kNever;
  for (const auto& [host, time] : back_at_) {
    first = std::min(first, time);
  }
  return first;
}

/// The first of those that are due. A link that is cut is still cut.
std::vector<int> Faults::come_back() {
  const double now = next_back();
  const auto due = std::find_if(
      back_at_.begin(), back_at_.end(), [now](const auto& back) { return back.second == now; });
  const int host = due->first;
  back_at_.erase(due);
  ++counts_.back;
  hosts_[at(host)] = {.silent_since = now, .silent_until = cut_until(0, host)};
  for (auto& [ends, channel] : channels_) {
    if (ends.first == host || ends.second == host) {
      channel.last = 0;
    }
  }
  return {host};
}

/// Of a point that has just been taken, and of hosts from `first` on. A given point draws as one of its own.
int Faults::drawn_host(const Course& course, std::uint64_t which, int first) const {
  const std::uint64_t index = 3 * (course.drawn + (course.taken << 32)) + which;
  const auto choices = static_cast<std::uint64_t>(static_cast<int>(hosts_.size()) - first);
  return first + static_cast<int>(course.random.below(index, choices));
}

std::vector<Faults::Death> Faults::die(int host, const std::string& how) {
  if (std::exchange(hosts_[at(host)].dead, true)) {
    return {};
  }
  return {{host, concat("host ", host, " ", how)}};
}

void Faults::freeze(const Course::Point& point) {
  const int host = point.host >= 0 ? static_cast<int>(point.host) : drawn_host(freezes_, 1, 0);
  Host& who = hosts_[at(host)];
  if (who.dead) {
    return;
  }
  ++counts_.freezes;
  who.frozen_until = std::max(who.frozen_until, point.at + freeze_seconds_);
  silence(host, point.at, who.frozen_until);
}

void Faults::cut(const Course::Point& point) {
  const auto hosts = static_cast<int>(hosts_.size());
  const int a = point.host >= 0 ? static_cast<int>(point.host) : drawn_host(cuts_, 1, 0);
  ++counts_.cuts;
  if (point.other == -1) {
    for (int b = 0; b < hosts; ++b) {
      cut_between(a, b, point.at);
    }
    return;
  }
  int b = static_cast<int>(point.other);
  if (point.other < 0) {
    b = drawn_host(cuts_, 2, 1);  // the others in a circle from a on
    b = (a + b) % hosts;
  }
  cut_between(a, b, point.at);
}

void Faults::cut_between(int a, int b, double from) {
  if (a == b) {
    return;
  }
  const double until = from + cut_seconds_;
  double& end = cut_until_[std::minmax(a, b)];
  end = std::max(end, until);
  if (std::min(a, b) == 0) {
    silence(std::max(a, b), from, until);
  }
}

double Faults::cut_until(int a, int b) const {
  const auto found = cut_until_.find(std::minmax(a, b));
  return found == cut_until_.end() ? 0 : found->second;
}

/// Host 0 hears nothing of it.
void Faults::silence(int host, double from, double until) {
  Host& who = hosts_[at(host)];
  if (from > who.silent_until) {
    who.silent_since = from;
  }
  who.silent_until = std::max(who.silent_until, until);
}

/// When host 0 gives it up, as things stand.
double Faults::given_up_at(int host) const {
  const Host& who = hosts_[at(host)];
  const double counts_from = std::max(who.silent_since, hosts_[0].frozen_until);
  const double given_up = counts_from + detection_;
  return who.dead || hosts_[0].dead || given_up >= who.silent_until ? kNever : given_up;
}

void Faults::expect() {
  next_given_up_ = kNever;
  for (int host = 1; host < static_cast<int>(hosts_.size()); ++host) {
    if (const double time = given_up_at(host); time < next_given_up_) {
      next_given_up_ = time;
      whom_ = host;
    }
  }
}

// -- links and the wire ----------------------------------------------------------------------------

bool Faults::apart(ActorId a, ActorId b) const {
  return a < host_of_.size() && b < host_of_.size() && host_of_[a] != host_of_[b];
}

std::vector<double> Faults::arrivals(ActorId from, ActorId to, double now, double way) {
  const int a = host_of_[from];
  const int b = host_of_[to];
  Channel& channel = channels_[{a, b}];
  const RandomStream random = stream_of(
      seed_, "wire", mix((static_cast<std::uint64_t>(a) << 32) + static_cast<std::uint64_t>(b)));
  for (double leaves = now;;) {
    const std::uint64_t draws = 4 * channel.packets++;
    if (const double healed = cut_until(a, b); leaves < healed || random.uniform(draws) < loss_) {
      ++counts_.packets_lost;
      if (!numbered_) {
        return {};
      }
      // The first time at which it is sent again and the link is whole.
      const double turn =
          std::max(std::floor((leaves - now) / again_ + 1.5), std::ceil((healed - now) / again_));
      leaves = std::max(now + again_ * turn, healed);
      continue;
    }
    const double comes = leaves + way + exponential(random, draws + 1, delay_);
    const bool twice = random.uniform(draws + 2) < duplicates_;
    counts_.packets_doubled += twice ? 1 : 0;
    if (numbered_) {
      channel.last = std::max(channel.last, comes);
      return {channel.last};
    }
    std::vector<double> all{comes};
    if (twice) {
      all.push_back(comes + exponential(random, draws + 3, delay_));
    }
    return all;
  }
}

void Faults::archive(Archive& a) {
  crashes_.archive(a);
  freezes_.archive(a);
  cuts_.archive(a);
  a(hosts_, back_at_, cut_until_, channels_, next_given_up_, whom_, counts_);
}

}  // namespace troupe
