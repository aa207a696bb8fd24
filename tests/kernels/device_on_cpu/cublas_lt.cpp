// Products as cuBLASLt's interface has them, by three loops. An algorithm is for the layouts and alignments that it was asked
// for with, and overwrites the workspace that it said it needs. A bias is read in words of 16 bytes.
#include "kernels/functors/bfloat16.hpp"
#include "tests/kernels/device_on_cpu/device.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

struct cublasLtContext {};

struct cublasLtMatmulDescription {
  cublasComputeType_t compute;
  std::array<cublasOperation_t, 2> operation{CUBLAS_OP_N, CUBLAS_OP_N};
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;  // of d's type
};

/// Columns follow each other at distances of `pitch`.
struct cublasLtMatrixLayoutDescription {
  cudaDataType_t type;
  std::uint64_t rows;
  std::uint64_t columns;
  std::int64_t pitch;

  std::size_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }

  std::size_t size_bytes() const {
    return ((columns - 1) * static_cast<std::uint64_t>(pitch) + rows) * element_bytes();
  }
};

struct cublasLtMatmulPreferences {
  std::uint64_t workspace_bytes = 0;
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};  // of a, b, c, d
};

namespace {

using Matrix = cublasLtMatrixLayoutDescription;

constexpr std::uint64_t kWorkspace = 4096;

/// What the choice of an algorithm depends on, as it is kept in one.
cublasLtMatmulAlgo_t algorithm_of(const cublasLtMatmulDescription& p,
                                  const Matrix& a,
                                  const Matrix& b,
                                  const Matrix& d) {
  const auto layout = [](const Matrix& m) {
    return (m.rows * 0x9e3779b97f4a7c15u + m.columns) * 0x9e3779b97f4a7c15u +
           static_cast<std::uint64_t>(m.pitch) * 2 + (m.type == CUDA_R_32F ? 1 : 0);
  };
  const std::uint64_t how =
      static_cast<std::uint64_t>(p.compute) << 32 | static_cast<std::uint64_t>(p.epilogue) << 8 |
      static_cast<std::uint64_t>(p.operation[0]) << 1 | static_cast<std::uint64_t>(p.operation[1]);
  return {{how, layout(a), layout(b), layout(d)}};
}

bool has_bias(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
}

bool fits(const cublasLtMatmulDescription& p, const Matrix& a, const Matrix& b, const Matrix& d) {
  const auto rows = [](const Matrix& m, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? m.rows : m.columns;
  };
  const auto columns = [](const Matrix& m, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? m.columns : m.rows;
  };
  const auto whole = [](const Matrix& m) {
    return m.rows > 0 && m.columns > 0 && m.pitch >= static_cast<std::int64_t>(m.rows);
  };
  return whole(a) && whole(b) && whole(d) && rows(a, p.operation[0]) == d.rows &&
         columns(a, p.operation[0]) == rows(b, p.operation[1]) &&
         columns(b, p.operation[1]) == d.columns && a.type == b.type &&
         (d.type == CUDA_R_32F || d.type == a.type) &&
         (a.type == CUDA_R_32F || p.compute == CUBLAS_COMPUTE_32F);
}

/// An operand as the product reads it: not transposed, rows next to each other.
std::vector<float> read(const Matrix& m,
                        const void* data,
                        bool transposed,
                        cublasComputeType_t compute) {
  const std::uint64_t rows = transposed ? m.columns : m.rows;
  const std::uint64_t columns = transposed ? m.rows : m.columns;
  std::vector<float> out(rows * columns);
  for (std::uint64_t r = 0; r < rows; ++r) {
    for (std::uint64_t c = 0; c < columns; ++c) {
      const std::uint64_t at =
          (transposed ? r : c) * static_cast<std::uint64_t>(m.pitch) + (transposed ? c : r);
      float x = m.type == CUDA_R_32F
                    ? static_cast<const float*>(data)[at]
                    : troupe::to_float(static_cast<const troupe::BFloat16*>(data)[at]);
      if (compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
        x = std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000u) &
                                 0xffffe000u);  // 10 bits of mantissa
      }
      out[r * columns + c] = x;
    }
  }
  return out;
}

struct Product {
  cublasLtMatmulDescription p;
  Matrix a, b, d;
  float alpha, beta;
  const void* a_data;
  const void* b_data;
  void* d_data;

  void run() const {
    const std::vector<float> left = read(a, a_data, p.operation[0] == CUBLAS_OP_T, p.compute);
    const std::vector<float> right =
        read(b, b_data, p.operation[1] != CUBLAS_OP_T, p.compute);  // by columns
    const std::uint64_t inner = p.operation[0] == CUBLAS_OP_N ? a.columns : a.rows;
    for (std::uint64_t c = 0; c < d.columns; ++c) {
      for (std::uint64_t r = 0; r < d.rows; ++r) {
        float sum = 0;
        for (std::uint64_t k = 0; k < inner; ++k) {
          sum += left[r * inner + k] * right[c * inner + k];
        }
        const std::uint64_t to = c * static_cast<std::uint64_t>(d.pitch) + r;
        sum = alpha * sum + (beta != 0 ? beta * element(d_data, to) : 0.0f);
        sum += has_bias(p.epilogue) ? element(p.bias, r) : 0.0f;
        const bool relu =
            p.epilogue == CUBLASLT_EPILOGUE_RELU || p.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
        sum = relu && sum < 0 ? 0.0f : sum;
        if (d.type == CUDA_R_32F) {
          static_cast<float*>(d_data)[to] = sum;
        } else {
          static_cast<troupe::BFloat16*>(d_data)[to] = troupe::to_bfloat16(sum);
        }
      }
    }
  }

  /// Of d, or of the bias.
  float element(const void* data, std::uint64_t i) const {
    return d.type == CUDA_R_32F ? static_cast<const float*>(data)[i]
                                : troupe::to_float(static_cast<const troupe::BFloat16*>(data)[i]);
  }
};

template <class T>
cublasStatus_t made(T** to, T* value) {
  *to = value;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t dropped(const T* value) {
  delete value;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t assign(T& to, const void* value, std::size_t size_bytes) {
  if (size_bytes != sizeof to) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(&to, value, sizeof to);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return made(handle, new cublasLtContext);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return dropped(handle);
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                 : "CUBLAS_STATUS_INVALID_VALUE";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute,
                                        cudaDataType_t /*scale*/) {
  return made(description, new cublasLtMatmulDescription{.compute = compute});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return dropped(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value,
                                              std::size_t size_bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(description->operation[0], value, size_bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(description->operation[1], value, size_bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(description->epilogue, value, size_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(description->bias, value, size_bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType_t type,
                                          std::uint64_t rows,
                                          std::uint64_t columns,
                                          std::int64_t pitch) {
  return made(layout, new Matrix{type, rows, columns, pitch});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return dropped(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return made(preference, new cublasLtMatmulPreferences);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return dropped(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value,
                                                    std::size_t size_bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    return assign(preference->workspace_bytes, value, size_bytes);
  }
  const auto operand =
      static_cast<std::size_t>(attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  return assign(preference->alignment[operand], value, size_bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/,
                                              cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t /*c*/,
                                              cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference,
                                              int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  const bool bias_aligned = reinterpret_cast<std::uintptr_t>(description->bias) % 16 == 0;
  if (wanted < 1 || !fits(*description, *a, *b, *d) ||
      (has_bias(description->epilogue) && (!description->bias || !bias_aligned))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  cublasLtMatmulAlgo_t algorithm = algorithm_of(*description, *a, *b, *d);
  for (std::size_t operand = 0; operand < 4; ++operand) {
    algorithm.data[4] = algorithm.data[4] << 16 | preference->alignment[operand];
  }
  algorithm.data[5] = std::min(kWorkspace, preference->workspace_bytes);
  *found = 1;
  results[0] = {algorithm, algorithm.data[5], CUBLAS_STATUS_SUCCESS, 1.0f};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/,
                              cublasLtMatmulDesc_t description,
                              const void* alpha,
                              const void* a,
                              cublasLtMatrixLayout_t a_layout,
                              const void* b,
                              cublasLtMatrixLayout_t b_layout,
                              const void* beta,
                              const void* c,
                              cublasLtMatrixLayout_t c_layout,
                              void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace,
                              std::size_t workspace_bytes,
                              cudaStream_t stream) {
  const cublasLtMatmulAlgo_t fitting = algorithm_of(*description, *a_layout, *b_layout, *d_layout);
  const auto aligned = [&](const void* data, int operand) {
    const std::uint64_t to = algorithm->data[4] >> (16 * (3 - operand)) & 0xffffu;
    return reinterpret_cast<std::uintptr_t>(data) % to == 0;
  };
  const bool bias = has_bias(description->epilogue);
  if (!std::equal(fitting.data, fitting.data + 4, algorithm->data) || c != d ||
      c_layout != d_layout || !aligned(a, 0) || !aligned(b, 1) || !aligned(d, 3) ||
      workspace_bytes < algorithm->data[5] ||
      (bias && reinterpret_cast<std::uintptr_t>(description->bias) % 16 != 0)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Product product{*description,
                        *a_layout,
                        *b_layout,
                        *d_layout,
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta),
                        a,
                        b,
                        d};
  const int device = device_on_cpu::device_of(stream);
  if (device < 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  device_on_cpu::put({{stream, "cublasLtMatmul", 1u << device, [=, scratch = algorithm->data[5]] {
                         using device_on_cpu::need;
                         need(device,
                              product.a_data,
                              product.a.size_bytes(),
                              product.a.element_bytes(),
                              "cublasLtMatmul, a");
                         need(device,
                              product.b_data,
                              product.b.size_bytes(),
                              product.b.element_bytes(),
                              "cublasLtMatmul, b");
                         need(device,
                              product.d_data,
                              product.d.size_bytes(),
                              product.d.element_bytes(),
                              "cublasLtMatmul, d");
                         need(device,
                              product.p.bias,
                              bias ? product.d.rows * product.d.element_bytes() : 0,
                              product.d.element_bytes(),
                              "cublasLtMatmul, bias");
                         need(device, workspace, scratch, 256, "cublasLtMatmul, workspace");
                         if (device_on_cpu::sound()) {
                           std::memset(workspace, 0xff, scratch);
                           product.run();
                         }
                       }}});
  return CUBLAS_STATUS_SUCCESS;
}
