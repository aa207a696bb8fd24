// A process that the lead of a run has started.
#pragma once

#include "runtime/cluster/cluster.hpp"
#include "runtime/system/theatre.hpp"

#include <cstdint>
#include <mutex>
#include <optional>

namespace troupe {

/// What the lead wants played.
struct Invitation {
  int process = 0;
  int processes = 0;
  std::string token;
  std::string version;
  std::string experiment;  // resolved, as text
};

/// The first word of the lead, over the descriptor that was inherited; nothing where there is none.
std::optional<Invitation> read_invitation();
/// Answers that this process cannot take part.
void refuse_invitation(const Error& why);

class Node final : public Cluster {
 public:
  /// `process_of`: by ActorId.
  Node(const Invitation& invitation, std::vector<int> process_of);

  /// Answers the invitation; returns when it is known where all others are. `cast`: as the lead's. False
  /// where the lead is gone.
  bool join(const std::string& version, const std::string& cast);

  Result<void> open(Theatre& theatre) override;
  void send(ActorId to, Message message, double due) override;
  void record(RecordBatch batch) override;
  void down(ActorId id, const std::string& cause) override;

  Progress progress() const override { return {}; }

  void explain(std::vector<Standstill>& /*told*/) override {}

  void collect() override {}

  void close() override;

 private:
  void on(Parcel parcel);
  void tick();
  void hand_over_records();

  int processes_;
  std::uint64_t ticks_ = 0;
  std::mutex records_mutex_;  // guards records_, and the order of what goes to the lead
  std::vector<RecordBatch> records_;
};

}  // namespace troupe
