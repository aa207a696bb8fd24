// What peers keep in a checkpoint, and what has to hold of one that is read: every replica that it names is one of the run,
// and every list of slices is as long, and of such tensors, as the replica's weights.
#include "actors/exchange/peers.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "runtime/schemes/codecs/codec.hpp"

namespace troupe {

void PeerExchange::archive(Archive& a) {
  Exchange::archive(a);
  const std::vector<Tensor> first = values_of(newest_);
  archive_sized(a, alive_);
  a(told_,
    came_,
    ends_,
    newest_,
    kept_,
    passed_over_,
    made_,
    mixing_,
    asks_,
    own_pulls_,
    gatherings_,
    cut_,
    end_,
    finished_);
  if (a.reading()) {
    expect_archived(fit(first), "the state has other slices than this run");
    expect_sound();
    expect_sound_cut();
  }
}

void PeerExchange::expect_sound() const {
  for (const auto& [replica, end] : ends_) {
    expect_replica(replica);
  }
  for (const auto& [step, weights] : kept_) {
    expect_values(values_of(weights));
  }
  bool sound = !made_ || fit(values_of(made_->base));
  if (made_) {
    for (const Weights& predicted : made_->predictions) {
      sound = sound && fit(values_of(predicted));
    }
  }
  expect_archived(sound, "the state has a step of other slices than this run");
  for (const auto& [step, replica] : asks_) {
    expect_replica(replica);
  }
  for (const auto& [step, gathering] : gatherings_) {
    for (const auto* const replicas : {&gathering.missing, &gathering.uncounted}) {
      for (const std::int32_t replica : *replicas) {
        expect_replica(replica);
      }
    }
    for (const auto& [hearer, of] : gathering.due) {
      expect_replica(hearer);
      for (const auto& [teller, count] : of) {
        expect_replica(teller);
      }
    }
    const std::size_t slices = (of_one_moment() ? 2 : 1) * newest_.size();
    for (const auto& [replica, part] : gathering.parts) {
      expect_replica(replica);
      Note answer;
      answer.numbers = {0};
      answer.tensors = part;
      expect_archived(part.size() == slices && answers_well(answer),
                      "the state has an unusable answer");
    }
  }
}

void PeerExchange::expect_sound_cut() const {
  bool sound = may_be_cut(static_cast<double>(cut_.number));
  for (const auto& [step, gathering] : gatherings_) {
    sound = sound && may_be_cut(static_cast<double>(gathering.known)) &&
            may_be_cut(static_cast<double>(gathering.cut));
  }
  expect_archived(sound, "the state has a cut of an unusable number");
  for (const std::int32_t peer : cut_.missing) {
    expect_replica(peer);
  }
  expect_archived(cut_.open ? fit(cut_.here) : cut_.here.empty(), "the state has an unusable cut");
  const std::map<std::int32_t, std::int64_t> none;
  for (const auto* const counts : {&told_, &came_, &cut_.came, cut_.due ? &*cut_.due : &none}) {
    for (const auto& [peer, count] : *counts) {
      expect_replica(peer);
    }
  }
  for (const auto& [factor, told] : cut_.under_way) {
    expect_letter(told);
  }
}

void PeerExchange::expect_replica(std::int32_t replica) const {
  expect_archived(replica >= 0 && static_cast<std::size_t>(replica) < alive_.size(),
                  "the state has a replica that is not in this run");
}

void PeerExchange::expect_values(const std::vector<Tensor>& values) const {
  expect_archived(values.empty() || fit(values), "the state has other slices than this run");
}

void PeerExchange::expect_letter(const std::vector<Tensor>& told) const {
  expect_archived(told.size() == newest_.size(), "the state has other slices than this run");
  for (std::size_t s = 0; s < told.size(); ++s) {
    expect_archived(static_cast<bool>(slice_of_letter(s, told[s])),
                    "the state has an unusable message of a peer");
  }
}

void PeerExchange::expect_links(const std::vector<LinkState>& states) const {
  expect_archived(states.empty() || states.size() == seat_.links.size(),
                  "the state has other slices than this run");
}

}  // namespace troupe
