#include "kernels/combine.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

void combine(Stream& stream, const std::vector<Term>& terms, const Tensor& out) {
  TROUPE_CHECK(!terms.empty() && terms.size() <= kTermsMax,
               fill_in("[combine] {} terms; expected 1 to {}", terms.size(), kTermsMax));
  check_tensor("combine", "out", out, stream);
  for (const Term& term : terms) {
    check_tensor("combine", "a term", term.x, stream, out.shape());
    begin(stream, {&term.x});
  }
  begin(stream, {&out});
  TROUPE_DISPATCH(combine, stream, terms, out);
}

}  // namespace troupe
