// What a process of a run tells Prometheus, where record.prometheus says so: GET /metrics. Nothing but mailboxes is counted for it:
// when somebody asks, the thread that takes records hands over what the Recorder has added up, and the rest is read then and there.
// A run that stands still has no record to do so at; its newest numbers are told once more.
#pragma once

#include "kernels/result.hpp"
#include "runtime/record/recorder.hpp"
#include "runtime/serve/http.hpp"
#include "runtime/system/driver.hpp"
#include "runtime/system/mailboxes.hpp"
#include "runtime/system/others.hpp"

#include <atomic>
#include <condition_variable>
#include <iosfwd>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class MetricsServer final : public RecordSink {
 public:
  /// Of process `process` of a run: at PORT + `process` of `address`, or any port where PORT is 0. Null where the address is
  /// empty. `told`: where it says at which address that is, and what whoever asks has to show; null: nowhere. Error (usage) where
  /// the address is none, or the port is taken.
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address,
                                                      int process,
                                                      std::ostream* told);

  /// Where the recorder is: the sink that it has to get the run's records by, which shows them to `next` (may be null). `before`:
  /// seconds of the run's clock that are not in the recorder's shares. All outlive it or the run.
  RecordSink* attend(const Recorder& recorder,
                     RecordSink* next,
                     double before,
                     const Others* others);

  std::optional<Diverged> on(const RecordEntry& entry, double now) override;
  /// Of metrics.jsonl.
  void line(std::string_view line);

  /// Where the recorder is elsewhere: what goes to other processes and comes from there. `others` outlives it.
  void watch(const Others* others);

  /// What counts the messages that wait for the machines of `cast`, for ThreadOptions::mailboxes.
  Mailboxes* count_mailboxes(const Cast& cast);

 private:
  MetricsServer(int process) : process_(process) {}

  std::string page();

  const int process_;
  const Recorder* recorder_ = nullptr;
  RecordSink* next_ = nullptr;
  double before_ = 0;
  std::atomic<bool> asked_ = false;
  std::mutex mutex_;  // guards these
  std::condition_variable answered_;
  std::optional<Summary> summary_{};
  std::map<std::string, double> last_{};  // "train/loss", "gap/shard-0"
  const Others* others_ = nullptr;
  std::vector<std::string> machines_{};  // by ActorId
  std::optional<Mailboxes> mailboxes_{};
  std::optional<HttpServer> http_{};  // last: it calls the others
};

}  // namespace troupe
