#include "runtime/cluster/standstills.hpp"

#include "messages/fields.hpp"

namespace troupe {

template <>
inline constexpr int kFieldsOf<Remains> = 2;
template <>
inline constexpr int kFieldsOf<Standstill> = 3;

void archive(Archive& a, Told& told) {
  a(told);
}

}  // namespace troupe
