// The replica's own optimizer makes a step of each mini-batch. Its slices take turns within a period: how far a slice
// has moved travels, and the servers' answer is merged `overlap` mini-batches later.
#pragma once

#include "actors/exchange/upstream.hpp"

#include <vector>

namespace troupe {

class Streaming : public Upstream {
 public:
  explicit Streaming(Config config) : Upstream(std::move(config)), how_(*link().streaming()) {}

  bool prepare(Apply& apply, double now, Effects& fx) final;

 protected:
  /// Mini-batches into a period, after which slice `slice` is sent.
  std::int64_t turn_of(std::size_t slice) const;

  std::int64_t overlap() const { return how_.overlap; }

  bool sends(std::size_t slice, std::int64_t n) const override;
  void complete_upload(Upload& m, std::int64_t n, double now) override;
  void answer_merged(std::size_t slice, const Answer& answer, std::int64_t n) override;

 private:
  bool waits(std::int64_t /*n*/) const final { return false; }

  StreamingLink how_;
};

/// One that never waits: what comes later than it is due is merged when it comes, and until then its slice is
/// not sent again.
class NeverWaiting final : public Streaming {
 public:
  explicit NeverWaiting(Config config);

  void join(ExchangeHost& host, const Weights& initial) override;

  bool ready(std::int64_t /*batch*/) const override { return true; }

  void archive(Archive& a) override;

 private:
  bool sends(std::size_t slice, std::int64_t n) const override;
  void complete_upload(Upload& m, std::int64_t n, double now) override;
  void answer_came(std::size_t slice, double now) override;
  void answer_merged(std::size_t slice, const Answer& answer, std::int64_t n) override;

  std::vector<Pace> paces_;  // by slice
};

}  // namespace troupe
