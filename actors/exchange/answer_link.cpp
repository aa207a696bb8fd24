#include "actors/exchange/answer_link.hpp"

#include "actors/server/differences.hpp"
#include "kernels/wording.hpp"
#include "messages/bad_sender.hpp"

namespace troupe {

void decode(Answer& m, const AnswerLink& link) {
  TROUPE_BELIEVE(!m.weights.empty(), "an answer of the servers has no weights");
  Tensor& values = m.weights.front().values;
  const std::int64_t n = link.numbers;
  const auto expect = [&](const Codec* with, const Tensor& message) {
    const Result<void> sound =
        message ? check_message(with, message, n) : Error{ErrorKind::lost, "it has nothing"};
    TROUPE_BELIEVE(sound,
                   fill_in("slice {} of chunk {}: the server has sent an unusable answer: {}",
                           m.slice,
                           m.chunk,
                           sound.error().message));
  };
  for (std::size_t p = 1; p < m.weights.size(); ++p) {
    expect(nullptr, m.weights[p].values);
  }
  for (const Tensor& moment : m.moments) {
    expect(nullptr, moment);
  }
  if (values || !link.codec || link.whole) {
    const bool coded = link.codec && link.whole && values && values.type() == DType::int32;
    expect(coded ? link.codec : nullptr, values);
    values = coded ? decoded_on_host(*link.codec, values, n) : values;
    return;
  }
  TROUPE_BELIEVE(m.since == link.has_version,
                 fill_in("slice {} of chunk {}: the server has sent what its weights have moved "
                         "since version {}, and who asked has version {}",
                         m.slice,
                         m.chunk,
                         m.since,
                         link.has_version));
  TROUPE_BELIEVE(m.differences.size() <= Differences::kMost,
                 fill_in("slice {} of chunk {}: the server has sent an answer of {} messages, "
                         "which are at most {}",
                         m.slice,
                         m.chunk,
                         m.differences.size(),
                         Differences::kMost));
  for (const Tensor& difference : m.differences) {
    expect(link.codec, difference);
  }
  values = caught_up(*link.codec, link.has, m.differences);
  m.differences.clear();
}

}  // namespace troupe
