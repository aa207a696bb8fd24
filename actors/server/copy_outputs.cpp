#include "actors/server/copy_outputs.hpp"

#include "messages/archive.hpp"
#include "messages/evaluation.hpp"
#include "messages/record_archive.hpp"
#include "messages/servers.hpp"

#include <utility>

namespace troupe {

void CopySend::archive(Archive& a) {
  a(to, modelled, message);
}

void CopyRecord::archive(Archive& a) {
  troupe::archive(a, entry);
}

void CopyOutputs::release(Effects& fx) {
  for (CopySend& one : sends) {
    fx.pass_on(one.to, std::move(one.message), one.modelled);
  }
  for (CopyRecord& one : records) {
    fx.record(std::move(one.entry));
  }
  sends.clear();
  records.clear();
}

void SaidAgain::note(const CopyOutputs& outputs) {
  for (const CopySend& one : outputs.sends) {
    const auto* answer = get_if<Answer>(&one.message);
    if (!answer) {
      others_.push_back(one);
      continue;
    }
    Answers& of = answers_[one.to];
    if (answer->pinned) {
      of.pinned = one;
    } else {
      const auto* before = of.answer ? get_if<Answer>(&of.answer->message) : nullptr;
      const std::uint64_t asked = before ? before->request : 0;
      of.answer = one;
      std::uint64_t& request = get<Answer>(of.answer->message).request;
      request = request == 0 ? asked : request;  // newer than the answer, which may not have come
    }
  }
  for (const CopyRecord& one : outputs.records) {
    records_.push_back(one);
    if (records_.size() > kRecordsMax) {
      records_.pop_front();
    }
  }
}

void SaidAgain::released(std::int64_t step) {
  std::erase_if(others_, [step](const CopySend& one) {
    const auto* due = get_if<MarkDue>(&one.message);
    return due && !due->last && due->step <= step;
  });
}

CopyOutputs SaidAgain::all() const {
  CopyOutputs all;
  all.records.assign(records_.begin(), records_.end());
  for (const auto& [to, of] : answers_) {
    for (const auto* one : {&of.answer, &of.pinned}) {
      if (*one) {
        all.sends.push_back(**one);
      }
    }
  }
  all.sends.insert(all.sends.end(), others_.begin(), others_.end());
  return all;
}

void SaidAgain::archive(Archive& a) {
  a(answers_, others_, records_);
}

}  // namespace troupe
