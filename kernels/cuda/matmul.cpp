#include "kernels/matmul.hpp"

#include "kernels/convert.hpp"
#include "kernels/cuda/pad.hpp"
#include "kernels/cuda/state.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <cstdint>

namespace troupe::cuda {

namespace {

/// The greatest power of two, up to 256, that divides the address; 256 of null.
std::uint32_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  std::uint32_t bytes = 256;
  while (address % bytes != 0) {
    bytes /= 2;
  }
  return bytes;
}

template <class T>
void set(const MatmulDescription& description, cublasLtMatmulDescAttributes_t attribute, T value) {
  TROUPE_CUDA_CHECK(
      cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof value));
}

using MatmulPreference = Handle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class T>
void set(const MatmulPreference& preference,
         cublasLtMatmulPreferenceAttributes_t attribute,
         T value) {
  TROUPE_CUDA_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
}

cublasLtEpilogue_t epilogue(bool bias, bool relu) {
  if (bias) {
    return relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  }
  return relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

/// Elements from one row of an operand to the next, for a product with the key's extents: its
/// columns, or what is a multiple of 16 bytes. So are K, where it is an operand's columns, the rows of c, where a is
/// transposed and c is not added to, and the columns of a bfloat16 c without bias. GPT-2's head has 50257 classes: an H200
/// took 10.1 ms for its product and 7.2 ms for the gradient by its input, 1024 x 12 tokens, without; PyTorch's padded ones take
/// 1.3 and 1.1 there.
/// Small products are not worth the launch, and float32 ones use no Tensor Cores.
std::int64_t pitch_of(Precision precision, const MatmulKey& key, std::int64_t columns) {
  constexpr std::int64_t kExtentMin = 64;
  const std::int64_t each = precision == Precision::bf16 ? 8 : 4;  // elements in 16 bytes
  const bool small = std::min({key.rows, key.columns, key.inner}) < kExtentMin;
  return precision == Precision::fp32 || small ? columns : (columns + each - 1) / each * each;
}

/// A row-major (rows, columns) matrix, told as the column-major (columns, rows) one.
MatrixLayout layout_of_row_major(cudaDataType_t type,
                                 std::int64_t rows,
                                 std::int64_t columns,
                                 std::int64_t pitch) {
  MatrixLayout layout;
  TROUPE_CUDA_CHECK(cublasLtMatrixLayoutCreate(layout.out(),
                                               type,
                                               static_cast<std::uint64_t>(columns),
                                               static_cast<std::uint64_t>(rows),
                                               pitch));
  return layout;
}

/// Nothing where cuBLASLt has no algorithm.
std::optional<MatmulPlan> make_plan(cublasLtHandle_t handle,
                                    Precision precision,
                                    const MatmulKey& key,
                                    const void* bias,
                                    std::size_t workspace_bytes) {
  MatmulPlan plan;
  // Sums are float32 in every precision; the bias is of c's type.
  TROUPE_CUDA_CHECK(cublasLtMatmulDescCreate(
      plan.description.out(),
      precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
      CUDA_R_32F));
  const cudaDataType_t type = precision == Precision::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  set(plan.description, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.description, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan.description, CUBLASLT_MATMUL_DESC_EPILOGUE, key.epilogue);
  if (bias) {
    // The heuristic does not follow the pointer, but goes by its alignment.
    set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  const auto operand_layout = [&](std::int64_t rows, std::int64_t columns) {
    return layout_of_row_major(type, rows, columns, pitch_of(precision, key, columns));
  };
  plan.first = key.transpose_b ? operand_layout(key.columns, key.inner)
                               : operand_layout(key.inner, key.columns);
  plan.second =
      key.transpose_a ? operand_layout(key.inner, key.rows) : operand_layout(key.rows, key.inner);
  plan.out = layout_of_row_major(
      key.out == DType::bfloat16 ? CUDA_R_16BF : CUDA_R_32F, key.rows, key.columns, key.columns);

  MatmulPreference preference;
  TROUPE_CUDA_CHECK(cublasLtMatmulPreferenceCreate(preference.out()));
  set(preference,
      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<std::uint64_t>(workspace_bytes));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment_c);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle,
                                                               plan.description.get(),
                                                               plan.first.get(),
                                                               plan.second.get(),
                                                               plan.out.get(),
                                                               plan.out.get(),
                                                               preference.get(),
                                                               1,
                                                               &best,
                                                               &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0)) {
    return std::nullopt;
  }
  TROUPE_CUDA_CHECK(status);
  if (best.state == CUBLAS_STATUS_NOT_SUPPORTED) {
    return std::nullopt;
  }
  TROUPE_CUDA_CHECK(best.state);
  plan.algorithm = best.algo;
  return plan;
}

}  // namespace

MatmulPlans::MatmulPlans(Precision precision) : precision_(precision) {
  TROUPE_CUDA_CHECK(cublasLtCreate(handle_.out()));
}

const MatmulPlan* MatmulPlans::find(const MatmulKey& key,
                                    const void* bias,
                                    std::size_t workspace_bytes) {
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    found =
        plans_.emplace(key, make_plan(handle_.get(), precision_, key, bias, workspace_bytes)).first;
  } else if (bias && found->second) {
    set(found->second->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  return found->second ? &*found->second : nullptr;
}

namespace {

/// x, or a copy with `rows` rows as the plan of `key` reads them: zeros where x has nothing.
Tensor pitched(Stream& stream, const MatmulKey& key, const Tensor& x, std::int64_t rows) {
  const std::int64_t pitch = pitch_of(stream.precision(), key, x.shape()[1]);
  if (rows == x.shape()[0] && pitch == x.shape()[1]) {
    return x;
  }
  Tensor y = stream.allocate({rows, pitch}, x.type());
  pad_rows(activate(stream), x, y);
  return y;
}

/// c = a b or c += a b with the key's epilogue; false, and c is as it was, where cuBLASLt cannot do
/// that.
bool multiply(const Backend::State& state,
              const MatmulKey& key,
              const Tensor& a,
              const Tensor& b,
              const void* bias,
              bool accumulate,
              const Tensor& c) {
  MatmulPlans& matmuls = state.tools->matmuls;
  const MatmulPlan* plan = matmuls.find(key, bias, kWorkspaceBytes);
  if (!plan) {
    return false;
  }
  const float one = 1.0f;
  const float beta = accumulate ? 1.0f : 0.0f;
  const cublasStatus_t status = cublasLtMatmul(matmuls.handle(),
                                               plan->description.get(),
                                               &one,
                                               first_byte(b),
                                               plan->first.get(),
                                               first_byte(a),
                                               plan->second.get(),
                                               &beta,
                                               first_byte(c),
                                               plan->out.get(),
                                               first_byte(c),
                                               plan->out.get(),
                                               &plan->algorithm,
                                               state.workspace<void>(),
                                               kWorkspaceBytes,
                                               state.stream.get());
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    matmuls.refuse(key);
    return false;
  }
  TROUPE_CUDA_CHECK(status);
  return true;
}

}  // namespace

// Bias and relu are epilogues of the product where cuBLASLt takes them: it has no tanh and no selu,
// reads a bias in words of 16 bytes, and for some shapes and alignments has an algorithm for the
// product alone. What is left is one pass over c. Its relu hands on a NaN as functors/activation.hpp does: cuda_views_test asks, and
// an H200 has answered.
void matmul(Stream& stream,
            const Tensor& a,
            const Tensor& b,
            const Tensor& c,
            const MatmulOptions& options) {
  const Backend::State& state = activate(stream);
  const float* bias = options.bias ? options.bias.data<float>() : nullptr;
  const bool relu = options.activation == ActivationKind::relu;
  MatmulKey key;
  key.rows = c.shape()[0];
  key.columns = c.shape()[1];
  key.inner = a.shape()[options.transpose_a ? 0 : 1];
  key.transpose_a = options.transpose_a;
  key.transpose_b = options.transpose_b;
  key.out = c.type();
  if (!options.transpose_a || options.transpose_b) {
    key.inner = pitch_of(stream.precision(), key, key.inner);
  }
  if (key.out == DType::bfloat16 && !bias && !options.accumulate) {
    key.columns = pitch_of(stream.precision(), key, key.columns);
  }
  if (options.transpose_a && !options.accumulate) {
    key.rows = pitch_of(stream.precision(), key, key.rows);
  }
  const Tensor left =
      pitched(stream, key, operand(stream, a), options.transpose_a ? key.inner : key.rows);
  const Tensor right =
      pitched(stream, key, operand(stream, b), options.transpose_b ? key.columns : key.inner);
  const bool larger = Shape{key.rows, key.columns} != c.shape();
  const Tensor out = larger ? stream.allocate({key.rows, key.columns}, key.out) : c;
  key.alignment_a = alignment(first_byte(left));
  key.alignment_b = alignment(first_byte(right));
  key.alignment_c = alignment(first_byte(out));

  const bool wants_pass = bias || options.activation != ActivationKind::none;
  bool fused_in = false;
  if (wants_pass && (relu || options.activation == ActivationKind::none)) {
    const Tensor added =
        bias && c.type() == DType::bfloat16 ? operand(stream, options.bias) : options.bias;
    const void* const at = added ? first_byte(added) : nullptr;
    MatmulKey fused = key;
    fused.epilogue = epilogue(bias != nullptr, relu);
    fused.alignment_bias = alignment(at);
    fused_in =
        alignment(at) >= 16 && multiply(state, fused, left, right, at, options.accumulate, out);
  }
  TROUPE_CHECK(fused_in || multiply(state, key, left, right, nullptr, options.accumulate, out),
               fill_in("[matmul] cuBLASLt has no algorithm for M {}, N {}, K {} in {}",
                       key.rows,
                       key.columns,
                       key.inner,
                       to_string(state.precision)));
  if (larger) {
    pad_rows(state, out, c);
  }
  if (wants_pass && !fused_in) {
    bias_and_activation(state, options.activation, c, bias, c);
  }
}

}  // namespace troupe::cuda
