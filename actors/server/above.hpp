// What the server of a group of replicas has of the server above it: what has accumulated since both exchanged last,
// the message that is on its way, and the answer that waits to be merged.
//
//   group's server --Upload--> server above --Answer--> group's server
//
// Invariants: one Upload is out at a time; nobody waits for its answer; a push is counted in one Upload.
#pragma once

#include "messages/returns.hpp"
#include "messages/servers.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class Above {
 public:
  struct Config {
    Ref<ServerRole> server;
    std::int32_t group = 0;       // as the server above knows it
    std::int64_t accumulate = 1;  // pushes between two exchanges
    double merge = 1;             // share of the weights above in what is merged
    std::int32_t chunk = 0;
    std::size_t slice = 0;
    std::vector<bool> members{};  // by replica
    bool alone = false;  // there is no other server above, for which replicas have to go on
    std::shared_ptr<const Codec> down{};  // what answers come through; empty: none
    bool down_whole = false;              // ... and of whole weights
  };

  Above(Config config, Tensor initial);

  const Config& config() const { return c_; }

  /// Only of the group's members: the others are others' to know.
  Membership own(Membership m) const;

  /// A job is under way that is no update with pushes.
  bool at_work() const { return at_work_; }

  /// An answer waits to be merged.
  bool has_answer() const { return theirs_.has_value(); }

  /// Pushes have accumulated that may go up.
  bool has_unsent() const { return !out_ && pushes_ > 0; }

  /// `pushes` are applied by `job`, which is to tell what has moved where enough have accumulated.
  void accumulate(const std::vector<Upload>& pushes, Combine& job);
  /// `job` merges the answer.
  void merge(Combine& job);
  /// `job` tells what has moved, whether enough has accumulated or not.
  void flush(Combine& job);

  /// A job of accumulate(), merge() or flush() has been done, and `weights` are the newest.
  void done(Tensor moved, const Tensor& weights, double now, Effects& fx);

  /// False: it has come before, or nothing was asked. ContractError where it is no such answer: it may be from
  /// another process, and a group that went on would never exchange again.
  bool came(Answer m);

  void archive(auto& a) {
    a(since_,
      theirs_,
      pushes_,
      mini_batches_,
      sent_,
      sequence_,
      read_version_,
      read_time_,
      rate_,
      out_,
      at_work_,
      has_,
      has_version_);
  }

 private:
  void send(Tensor moved, Effects& fx);

  Config c_;
  Tensor since_;                   // (n) the weights after the last exchange
  std::optional<Answer> theirs_;   // has come, and is not merged yet
  std::int64_t pushes_ = 0;        // since then
  std::int64_t mini_batches_ = 0;  // in no Upload yet
  std::int64_t sent_ = 0;          // mini-batches in all Uploads
  std::uint64_t sequence_ = 0;     // of the last Upload
  std::int64_t read_version_ = 0;  // above, of what was merged last
  double read_time_ = 0;           // seconds: when
  double rate_ = 0;                // learning rate of the last push
  bool out_ = false;               // an Upload whose answer has yet to be merged
  bool at_work_ = false;
  Tensor has_;  // (n) the weights above that differences count from, where these come
  std::int64_t has_version_ = -1;  // of it
};

}  // namespace troupe
