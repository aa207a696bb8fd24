// A stand-in: what kernels/cuda/ uses of cuDNN. Names and values are NVIDIA's.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#define CUDNN_MAJOR on_cpu

enum cudnnStatus_t {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_NOT_SUPPORTED = 3000
};

enum cudnnDataType_t { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_BFLOAT16 = 9 };

enum cudnnTensorFormat_t { CUDNN_TENSOR_NHWC = 1 };

enum cudnnConvolutionMode_t { CUDNN_CROSS_CORRELATION = 1 };

enum cudnnDeterminism_t { CUDNN_NON_DETERMINISTIC = 0, CUDNN_DETERMINISTIC = 1 };

enum cudnnMathType_t { CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH = 1, CUDNN_FMA_MATH = 3 };

enum cudnnConvolutionFwdAlgo_t : int {};

enum cudnnConvolutionBwdDataAlgo_t : int {};

enum cudnnConvolutionBwdFilterAlgo_t : int {};

struct cudnnContext;
struct cudnnTensorStruct;
struct cudnnFilterStruct;
struct cudnnConvolutionStruct;
using cudnnHandle_t = cudnnContext*;
using cudnnTensorDescriptor_t = cudnnTensorStruct*;
using cudnnFilterDescriptor_t = cudnnFilterStruct*;
using cudnnConvolutionDescriptor_t = cudnnConvolutionStruct*;

template <class Algorithm>
struct cudnnPerformance {
  Algorithm algo;
  cudnnStatus_t status;
  float time;
  std::size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
};

using cudnnConvolutionFwdAlgoPerf_t = cudnnPerformance<cudnnConvolutionFwdAlgo_t>;
using cudnnConvolutionBwdDataAlgoPerf_t = cudnnPerformance<cudnnConvolutionBwdDataAlgo_t>;
using cudnnConvolutionBwdFilterAlgoPerf_t = cudnnPerformance<cudnnConvolutionBwdFilterAlgo_t>;

extern "C" {
std::size_t cudnnGetVersion();
const char* cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char* message, std::size_t size_bytes);
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor);
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor,
                                         cudnnTensorFormat_t format,
                                         cudnnDataType_t type,
                                         int n,
                                         int c,
                                         int h,
                                         int w);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor);
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor,
                                         cudnnDataType_t type,
                                         cudnnTensorFormat_t format,
                                         int k,
                                         int c,
                                         int h,
                                         int w);
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor);
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor,
                                              int padding_h,
                                              int padding_w,
                                              int stride_h,
                                              int stride_w,
                                              int dilation_h,
                                              int dilation_w,
                                              cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor,
                                          cudnnMathType_t math);
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle,
                                                     cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t convolution,
                                                     cudnnTensorDescriptor_t y,
                                                     int wanted,
                                                     int* found,
                                                     cudnnConvolutionFwdAlgoPerf_t* results);
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle,
    cudnnFilterDescriptor_t w,
    cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution,
    cudnnTensorDescriptor_t dx,
    int wanted,
    int* found,
    cudnnConvolutionBwdDataAlgoPerf_t* results);
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle,
    cudnnTensorDescriptor_t x,
    cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution,
    cudnnFilterDescriptor_t dw,
    int wanted,
    int* found,
    cudnnConvolutionBwdFilterAlgoPerf_t* results);
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle,
                                      const void* alpha,
                                      cudnnTensorDescriptor_t x,
                                      const void* x_data,
                                      cudnnFilterDescriptor_t w,
                                      const void* w_data,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace,
                                      std::size_t workspace_bytes,
                                      const void* beta,
                                      cudnnTensorDescriptor_t y,
                                      void* y_data);
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle,
                                           const void* alpha,
                                           cudnnFilterDescriptor_t w,
                                           const void* w_data,
                                           cudnnTensorDescriptor_t dy,
                                           const void* dy_data,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void* workspace,
                                           std::size_t workspace_bytes,
                                           const void* beta,
                                           cudnnTensorDescriptor_t dx,
                                           void* dx_data);
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle,
                                             const void* alpha,
                                             cudnnTensorDescriptor_t x,
                                             const void* x_data,
                                             cudnnTensorDescriptor_t dy,
                                             const void* dy_data,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace,
                                             std::size_t workspace_bytes,
                                             const void* beta,
                                             cudnnFilterDescriptor_t dw,
                                             void* dw_data);
}
