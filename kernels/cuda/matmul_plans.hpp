// cuBLASLt, and what it has worked out for every kind of product that a stream has met.
//
// cuBLASLt thinks in columns. A row-major (M, N) matrix is, byte for byte, a column-major (N, M)
// one, so that we ask for the transpose of what we want: c' = b' a'. Its first operand is our b,
// its second our a, its rows are our N; and its bias, one value a row, is our bias, one value a
// column.
#pragma once

#include "kernels/cuda/handle.hpp"
#include "kernels/device.hpp"
#include "kernels/tensor.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace troupe::cuda {

/// What cuBLASLt's choice of an algorithm depends on.
struct MatmulKey {
  std::int64_t rows = 1;     // M
  std::int64_t columns = 1;  // N
  std::int64_t inner = 1;    // K
  bool transpose_a = false;
  bool transpose_b = false;
  DType out = DType::float32;  // of c, and of the bias
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::uint32_t alignment_a = 256;  // of the pointers, in bytes: views begin anywhere
  std::uint32_t alignment_b = 256;
  std::uint32_t alignment_c = 256;
  std::uint32_t alignment_bias = 256;  // 256 where there is none

  auto operator<=>(const MatmulKey&) const = default;
};

using MatmulDescription = Handle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Handle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

struct MatmulPlan {
  MatmulDescription description;
  MatrixLayout first;   // b as stored
  MatrixLayout second;  // a as stored
  MatrixLayout out;     // c
  cublasLtMatmulAlgo_t algorithm{};
};

/// Of one stream; used by one thread at a time, with the stream's device current.
class MatmulPlans {
 public:
  explicit MatmulPlans(Precision precision);

  cublasLtHandle_t handle() const { return handle_.get(); }

  /// The plan of `key`, set to read `bias`; null where the epilogue has none. No plan where cuBLASLt
  /// has no algorithm.
  const MatmulPlan* find(const MatmulKey& key, const void* bias, std::size_t workspace_bytes);

  /// From now on `key` has no plan: it was promised and then refused.
  void refuse(const MatmulKey& key) { plans_[key].reset(); }

 private:
  Precision precision_;
  Handle<cublasLtHandle_t, cublasLtDestroy> handle_;
  std::map<MatmulKey, std::optional<MatmulPlan>> plans_;  // as many as a model has shapes
};

}  // namespace troupe::cuda
