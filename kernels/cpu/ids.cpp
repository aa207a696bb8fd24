#include "kernels/cpu/ids.hpp"

#include "kernels/check.hpp"
#include "kernels/wording.hpp"

namespace troupe::cpu {

void check_id(
    const char* op, const char* what, std::int64_t id, std::int64_t row, std::int64_t end) {
  TROUPE_CHECK(id >= 0 && id < end,
               fill_in("[{}] {} {} of row {} is not in [0, {})", op, what, id, row, end));
}

}  // namespace troupe::cpu
