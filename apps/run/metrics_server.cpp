#include "apps/run/metrics_server.hpp"

#include "apps/cli/version.hpp"
#include "runtime/cluster/tcp.hpp"
#include "runtime/record/json_reader.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <ostream>
#include <utility>

namespace troupe {
namespace {

namespace pm = prometheus;

constexpr int kPortMax = 65535;
// Not longer than a scrape waits: another may have the page meanwhile.
constexpr std::chrono::milliseconds kForNews{200};

using Labels = std::vector<pm::ClientMetric::Label>;

class Families {
 public:
  /// What is not known or not finite is left out.
  void add(pm::MetricType type,
           const char* name,
           const char* help,
           std::optional<double> value,
           Labels labels = {}) {
    if (!value || !std::isfinite(*value)) {
      return;
    }
    pm::ClientMetric& metric = in(type, name, help);
    metric.label = std::move(labels);
    metric.counter.value = metric.gauge.value = *value;
  }

  void counter(const char* name,
               const char* help,
               std::optional<double> value,
               Labels labels = {}) {
    add(pm::MetricType::Counter, name, help, value, std::move(labels));
  }

  void gauge(const char* name, const char* help, std::optional<double> value, Labels labels = {}) {
    add(pm::MetricType::Gauge, name, help, value, std::move(labels));
  }

  void histogram(const char* name, const char* help, const Histogram& counts, Labels labels) {
    pm::ClientMetric& metric = in(pm::MetricType::Histogram, name, help);
    metric.label = std::move(labels);
    std::uint64_t below = 0;
    auto at = counts.begin();
    for (const double bound :
         {0., 1., 2., 4., 8., 16., 32., 64., std::numeric_limits<double>::infinity()}) {
      for (; at != counts.end() && static_cast<double>(at->first) <= bound; ++at) {
        below += static_cast<std::uint64_t>(at->second);
        metric.histogram.sample_sum +=
            static_cast<double>(at->first) * static_cast<double>(at->second);
      }
      metric.histogram.bucket.push_back({below, bound});
    }
    metric.histogram.sample_count = below;
  }

  std::string text() const { return pm::TextSerializer().Serialize(all_); }

 private:
  pm::ClientMetric& in(pm::MetricType type, const char* name, const char* help) {
    if (all_.empty() || all_.back().name != name) {
      all_.push_back({name, help, type, {}});
    }
    return all_.back().metric.emplace_back();
  }

  std::vector<pm::MetricFamily> all_;
};

std::string numbered(const char* what, std::int64_t number) {
  return concat(what, '-', number);
}

void tell_process(Families& all, int process) {
  all.gauge("troupe_build_info",
            "The program, and which process of its run this is; always 1",
            1,
            {{"version", version()}, {"commit", commit()}, {"process", std::to_string(process)}});
  std::timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  all.counter("process_cpu_seconds_total",
              "CPU time that this process has used",
              static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec));
  double pages = 0;
  double resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  all.gauge("process_resident_memory_bytes",
            "Memory of this process that is in RAM",
            resident * static_cast<double>(::sysconf(_SC_PAGESIZE)));
  std::error_code code;
  const std::filesystem::directory_iterator open("/proc/self/fd", code);
  all.gauge("process_open_fds",
            "Open files and sockets of this process",
            static_cast<double>(std::distance(begin(open), end(open))));
}

/// `seconds`: that the shares are of.
void tell_stages(Families& all, const Summary& s, double seconds) {
  for (const auto& [stage, share] : s.busy) {
    all.counter("troupe_busy_seconds_total",
                "Seconds of the run's clock in which a stage computed",
                share * seconds,
                {{"actor", numbered("stage", stage)}});
  }
  for (const auto& [stage, shares] : s.idle) {
    for (std::size_t want = 0; want < shares.size(); ++want) {
      all.counter("troupe_idle_seconds_total",
                  "Seconds of the run's clock in which a stage waited, by what it lacked",
                  shares[want] * seconds,
                  {{"actor", numbered("stage", stage)}, {"reason", kWants[want]}});
    }
  }
}

void tell_losses(Families& all, const Summary& s) {
  const auto words = [&](const char* list) {
    const auto found = s.told.find(list);
    return found == s.told.end() ? 0. : static_cast<double>(found->second.size());
  };
  const char* const help = "Who was lost in the run; process: without whom it began again";
  all.counter("troupe_losses_total", help, words("lost"), {{"kind", "replica"}});
  all.counter("troupe_losses_total", help, words("lost_copies"), {{"kind", "copy"}});
  all.counter(
      "troupe_losses_total", help, static_cast<double>(s.restarts.size()), {{"kind", "process"}});
  all.counter("troupe_returns_total", "Replicas that were lost and came back", words("returned"));
}

void tell_run(Families& all, const Summary& s, double before) {
  all.counter("troupe_updates_total", "Updates that are complete", static_cast<double>(s.updates));
  all.counter("troupe_samples_total", "Samples in them", static_cast<double>(s.samples));
  all.counter("troupe_epochs_total", "Epochs in them", s.epochs);
  all.counter("troupe_clock_seconds_total", "What the run's clock shows", s.seconds);
  all.counter("troupe_sent_bytes_total",
              "Tensors between replicas and servers or one another",
              static_cast<double>(s.bytes_sent));
  for (const auto& [shard, staleness] : s.staleness) {
    all.histogram(
        "troupe_staleness_versions",
        "Age of the weights that a gradient was computed at, in updates, when it was applied",
        staleness.histogram,
        {{"shard", numbered("shard", shard)}});
  }
  tell_stages(all, s, s.seconds - before);
  tell_losses(all, s);
}

/// By the names that lines have in `last`.
void tell_lines(Families& all, const std::map<std::string, double>& last) {
  struct Told {
    const char* member;
    const char* name;
    const char* help;
  };

  constexpr std::array kTold{
      Told{"train/loss", "troupe_loss", "Mean training loss between the last two lines of metrics"},
      Told{"train/accuracy", "troupe_accuracy_ratio", "The same of the accuracy"},
      Told{"train/rate", "troupe_learning_rate", "Learning rate of the last chunk"},
      Told{"train/samples_per_second",
           "troupe_samples_per_second",
           "Samples a second of the run's clock between the last two lines of metrics"},
      Told{"evaluation/loss", "troupe_test_loss", "Loss of the last evaluation"},
      Told{"evaluation/accuracy", "troupe_test_accuracy_ratio", "Accuracy of the last evaluation"}};
  for (const Told& told : kTold) {
    if (const auto found = last.find(told.member); found != last.end()) {
      all.gauge(told.name, told.help, found->second);
    }
  }
  constexpr std::string_view kGap = "gap/";
  for (const auto& [member, value] : last) {
    if (member.starts_with(kGap)) {
      all.gauge("troupe_gap",
                "Root mean square of the distance between the weights of forward and those the "
                "gradient was applied to, when it was last measured",
                value,
                {{"shard", member.substr(kGap.size())}});
    }
  }
}

/// Of those that have not ended. `machines`: their names, by ActorId. `others`: null where all play here.
void tell_mailboxes(Families& all,
                    const Mailboxes& mailboxes,
                    const std::vector<std::string>& machines,
                    const Others* others) {
  for (std::size_t i = 0; i < machines.size(); ++i) {
    const auto id = static_cast<ActorId>(i);
    const std::int64_t waiting = mailboxes.waiting(id);
    if (waiting >= 0 && (!others || others->is_here(id))) {
      all.gauge("troupe_mailbox_messages",
                "Messages that were sent to an actor of this process and that it has not handled",
                static_cast<double>(waiting),
                {{"actor", machines[i]}});
    }
  }
}

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            int process,
                                                            std::ostream* told) {
  if (address.empty()) {
    return std::unique_ptr<MetricsServer>();
  }
  auto at = parse_address(address);
  if (!at || at->port + process > kPortMax) {
    return Error{
        ErrorKind::usage,
        concat("record.prometheus: ",
               !at ? at.error().message
                   : concat("process ", process, " has no port, as ", kPortMax, " is the last"))};
  }
  at->port += at->port > 0 ? process : 0;
  const char* const token = std::getenv("TROUPE_METRICS_TOKEN");
  std::unique_ptr<MetricsServer> server(new MetricsServer(process));
  auto http = HttpServer::start(
      {.address = at->text(), .token = token ? token : ""},
      {{"/metrics", [own = server.get()](const HttpRequest&) {
          return HttpReply{.body = own->page(), .type = "text/plain; version=0.0.4; charset=utf-8"};
        }}});
  if (!http) {
    return Error{http.error().kind, "record.prometheus: " + http.error().message};
  }
  if (told) {
    *told << "metrics for Prometheus are at " << http->url() << "/metrics"
          << (http->token().empty() ? "" : "; who asks must send Authorization: Bearer ")
          << http->token() << '\n'
          << std::flush;
  }
  server->http_.emplace(*std::move(http));
  return server;
}

RecordSink* MetricsServer::attend(const Recorder& recorder,
                                  RecordSink* next,
                                  double before,
                                  const Others* others) {
  const std::lock_guard lock(mutex_);
  recorder_ = &recorder;
  next_ = next;
  before_ = before;
  others_ = others;
  return this;
}

std::optional<Diverged> MetricsServer::on(const RecordEntry& entry, double now) {
  if (asked_.load(std::memory_order_relaxed)) {
    Summary summary = recorder_->summary(recorder_->completed());
    const std::lock_guard lock(mutex_);
    summary_ = std::move(summary);
    asked_ = false;
    answered_.notify_all();
  }
  return next_ ? next_->on(entry, now) : std::nullopt;
}

void MetricsServer::line(std::string_view line) {
  const Json of = Json::parse(line);
  const std::string kind = of["kind"].words();
  const std::lock_guard lock(mutex_);
  const auto keep = [this](const std::string& name, double number) {
    if (!std::isnan(number)) {
      last_[name] = number;
    }
  };
  if (kind == "gap" && !of["shard"].words().empty()) {
    keep("gap/" + of["shard"].words(), of["gap"].number());
  } else if (kind == "train" || kind == "evaluation") {
    for (const auto& [name, value] : of.leaves()) {
      keep(kind + '/' + name, value.number());
    }
  }
}

void MetricsServer::watch(const Others* others) {
  const std::lock_guard lock(mutex_);
  others_ = others;
}

Mailboxes* MetricsServer::count_mailboxes(const Cast& cast) {
  const std::lock_guard lock(mutex_);
  for (const Cast::Member& member : cast.members) {
    machines_.push_back(member.name);
  }
  return &mailboxes_.emplace(machines_.size());
}

std::string MetricsServer::page() {
  Families all;
  tell_process(all, process_);
  std::unique_lock lock(mutex_);
  if (recorder_) {
    asked_ = true;
    answered_.wait_for(lock, kForNews, [&] { return !asked_; });
  }
  if (summary_) {
    tell_run(all, *summary_, before_);
  }
  tell_lines(all, last_);
  if (mailboxes_) {
    tell_mailboxes(all, *mailboxes_, machines_, others_);
  }
  for (const auto& [peer, traffic] : others_ ? others_->traffic() : std::map<int, LinkBytes>()) {
    const char* const help =
        "Bytes between this process and another, without tensors in shared memory";
    all.counter("troupe_link_bytes_total",
                help,
                static_cast<double>(traffic.sent),
                {{"peer", std::to_string(peer)}, {"direction", "sent"}});
    all.counter("troupe_link_bytes_total",
                help,
                static_cast<double>(traffic.received),
                {{"peer", std::to_string(peer)}, {"direction", "received"}});
  }
  return all.text();
}

}  // namespace troupe
