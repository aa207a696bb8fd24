#include "runtime/cluster/standstills.hpp"

namespace troupe {

void archive(Archive& a, Told& told) {
  a(told);
}

}  // namespace troupe
