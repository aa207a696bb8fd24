// All of cuda:: in a build without CUDA. No stream of a GPU can be made here, so that nothing below
// check_available(), devices() and the constructor is ever reached.
#include "kernels/attention.hpp"
#include "kernels/coding.hpp"
#include "kernels/combine.hpp"
#include "kernels/convert.hpp"
#include "kernels/convolution.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/dropout.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/group_mean.hpp"
#include "kernels/late_gradient.hpp"
#include "kernels/loss.hpp"
#include "kernels/lstm.hpp"
#include "kernels/matmul.hpp"
#include "kernels/normalization.hpp"
#include "kernels/update.hpp"

namespace troupe::cuda {

namespace {

constexpr const char* kSentence =
    "this build has no CUDA; configure with -DTROUPE_CUDA=ON and nvcc on PATH, or use the device "
    "cpu";

[[noreturn]] void unavailable() {
  throw ContractError(kSentence);
}

}  // namespace

struct Backend::State {};

Result<void> check_available(int /*index*/) {
  return Error{ErrorKind::usage, kSentence};
}

bool has_narrow_products(int /*index*/) {
  return false;
}

std::vector<DeviceInfo> devices() {
  return {};
}

std::string cudnn_version() {
  return "";
}

std::string nccl_version() {
  return "";
}

Backend::Backend(int /*device_index*/, Precision /*precision*/) {
  unavailable();
}

Backend::~Backend() = default;

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

void download(const Tensor&, void*, std::size_t) {
  unavailable();
}

void copy(Stream&, const Tensor&, const Tensor&) {
  unavailable();
}

void fill(Stream&, const Tensor&, double) {
  unavailable();
}

void scale(Stream&, const Tensor&, float) {
  unavailable();
}

void activation_forward(Stream&, ActivationKind, const Tensor&, const Tensor&) {
  unavailable();
}

void activation_backward(Stream&, ActivationKind, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void convert(Stream& /*stream*/, const Tensor& /*x*/, const Tensor& /*y*/) {
  unavailable();
}

void matmul(Stream&, const Tensor&, const Tensor&, const Tensor&, const MatmulOptions&) {
  unavailable();
}

void column_sum(Stream&, const Tensor&, const Tensor&, bool) {
  unavailable();
}

void softmax_cross_entropy(
    Stream&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, float) {
  unavailable();
}

void squared_error(Stream&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void update(Stream&, const UpdateArguments&) {
  unavailable();
}

void nesterov_direction(
    Stream&, const UpdateScalars&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void normalize(Stream&, const Tensor&, const Tensor&) {
  unavailable();
}

void sum_of_squares(Stream&, const Tensor&, std::span<const Part>, const Tensor&) {
  unavailable();
}

void squared_distance(Stream&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void causal_attention_forward(Stream&, std::int64_t, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void causal_attention_backward(Stream&,
                               std::int64_t,
                               const Tensor&,
                               const Tensor&,
                               const Tensor&,
                               const Tensor&,
                               const Tensor&) {
  unavailable();
}

void swap_leading(Stream&, const Tensor&, const Tensor&) {
  unavailable();
}

void lstm_cell_forward(Stream&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void lstm_cell_backward(Stream&,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&) {
  unavailable();
}

void convolution_forward(Stream&,
                         const ConvolutionGeometry&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         ActivationKind,
                         const Tensor&) {
  unavailable();
}

void convolution_input_gradient(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void convolution_weight_gradient(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&, bool) {
  unavailable();
}

void max_pool_forward(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void max_pool_backward(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void batch_norm_forward(Stream&,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&,
                        float,
                        ActivationKind,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&) {
  unavailable();
}

void batch_norm_infer(Stream&,
                      const Tensor&,
                      const Tensor&,
                      const Tensor&,
                      const Tensor&,
                      const Tensor&,
                      float,
                      ActivationKind,
                      const Tensor&) {
  unavailable();
}

void batch_norm_running(Stream&,
                        const Tensor&,
                        const Tensor&,
                        std::int64_t,
                        float,
                        float,
                        const Tensor&,
                        const Tensor&) {
  unavailable();
}

void batch_norm_backward(Stream&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&) {
  unavailable();
}

void layer_norm_forward(Stream&,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&,
                        float,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&) {
  unavailable();
}

void layer_norm_backward(Stream&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&) {
  unavailable();
}

void group_norm_forward(Stream&,
                        std::int64_t,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&,
                        float,
                        const Tensor&,
                        const Tensor&,
                        const Tensor&) {
  unavailable();
}

void group_norm_backward(Stream&,
                         std::int64_t,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&) {
  unavailable();
}

void dropout(Stream&, const RandomStream&, std::uint64_t, float, const Tensor&, const Tensor&) {
  unavailable();
}

void add(Stream&, const Tensor&, const Tensor&, ActivationKind, const Tensor&) {
  unavailable();
}

void add_left(Stream&, const Tensor&, float, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void encode_message(Stream&, const MessageCode&, const Tensor&, const Tensor&) {
  unavailable();
}

void decode_message(Stream&, const MessageCode&, const Tensor&, const Tensor&) {
  unavailable();
}

void keep_left(
    Stream&, const MessageCode&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void combine(Stream&, const std::vector<Term>&, const Tensor&) {
  unavailable();
}

void compensate_delay(Stream&,
                      Compensation,
                      const CompensationScalars&,
                      const Tensor&,
                      const Tensor&,
                      const Tensor&,
                      const Tensor&,
                      const Tensor&) {
  unavailable();
}

void damp_by_gap(Stream&, float, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void damp_by_own_steps(Stream&,
                       const OwnStepScalars&,
                       const Tensor&,
                       const Tensor&,
                       const Tensor&,
                       const Tensor&,
                       const Tensor&,
                       const Tensor&) {
  unavailable();
}

void average_square_step(Stream&, float, float, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void divide_by_deviation(Stream&,
                         const DeviationScalars&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&) {
  unavailable();
}

void embedding_forward(Stream&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable();
}

void embedding_gradient(Stream&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool) {
  unavailable();
}

void average_pool_forward(Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&) {
  unavailable();
}

void average_pool_backward(Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&) {
  unavailable();
}

std::vector<std::vector<Tensor>> group_mean(Stream&,
                                            const std::vector<Device>&,
                                            const std::vector<std::vector<Tensor>>&) {
  unavailable();
}

}  // namespace troupe::cuda
