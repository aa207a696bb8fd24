#include "runtime/cluster/standstills.hpp"

#include "messages/archive.hpp"

namespace troupe {

void archive(Archive& a, Told& told) {
  a(told);
}

}  // namespace troupe
