// Of a program that was built without UCX.
#include "runtime/cluster/ucx_plane.hpp"

#include <stdexcept>

namespace troupe {
namespace {

constexpr const char* kAbsent =
    "this program was built without UCX; install libucx-dev and build it again";

}  // namespace

std::string ucx_version() {
  return "";
}

Result<void> check_ucx(const std::string& /*version*/) {
  return Error{ErrorKind::usage, kAbsent};
}

std::string ucx_words() {
  return "none: built without it, so that --transport ucx is refused";
}

std::unique_ptr<TensorPlane> make_ucx_plane(TensorPlane::Events /*events*/) {
  throw std::runtime_error(kAbsent);
}

}  // namespace troupe
