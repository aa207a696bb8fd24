// What kernels/*.cpp call of cuda/backend.hpp, in a build without CUDA. No stream of a GPU can be made here, so that nothing
// below check_available(), devices() and the constructor is ever reached. Ops have nothing here (dispatch.hpp).
#include "kernels/cuda/backend.hpp"
#include "kernels/dispatch.hpp"

namespace troupe::cuda {

namespace {

[[noreturn]] void unavailable() {
  throw ContractError(kCuda.advice);
}

}  // namespace

struct Backend::State {};

Result<void> check_available(int /*index*/) {
  return Error{ErrorKind::usage, kCuda.advice};
}

bool has_narrow_products(int /*index*/) {
  return false;
}

std::vector<DeviceInfo> devices() {
  return {};
}

Backend::Backend(int /*device_index*/, Precision /*precision*/) {
  unavailable();
}

Backend::~Backend() = default;

void* Backend::native_handle() const {
  unavailable();
}

Event Backend::record() {
  unavailable();
}

void Backend::wait(const Event& /*event*/) {
  unavailable();
}

void Backend::synchronize() {
  unavailable();
}

void wait_event(const Event& /*event*/) {
  unavailable();
}

std::byte* allocate_bytes(int /*device_index*/, std::size_t /*size_bytes*/) {
  unavailable();
}

void free_bytes(int /*device_index*/, std::byte* /*data*/) noexcept {}

std::shared_ptr<void> make_uses() {
  unavailable();
}

void note_use(Buffer& /*buffer*/, Backend& /*backend*/) {
  unavailable();
}

void retire(Buffer& /*buffer*/) noexcept {}

void await_uses(Buffer& /*buffer*/, Backend& /*backend*/) {
  unavailable();
}

void upload(Backend&, const void*, const Tensor&, std::size_t) {
  unavailable();
}

void copy_within(Backend&, const void*, const Tensor&) {
  unavailable();
}

void download(const Tensor&, void*, std::size_t) {
  unavailable();
}

void copy(Stream&, const Tensor&, const Tensor&) {
  unavailable();
}

}  // namespace troupe::cuda
