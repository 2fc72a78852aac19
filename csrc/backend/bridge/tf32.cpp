#include "backend/bridge/tf32.h"

#include <ATen/Context.h>

namespace musa {

namespace {

// The CUDA flags of a build without CUDA have no other meaning, and programs written for CUDA set them.
musaSimDtype class_for(at::Float32Op op, musaSimDtype dtype) {
  const bool tf32 = dtype == musaSimFp32 &&
      at::globalContext().float32Precision(at::Float32Backend::CUDA, op) == at::Float32Precision::TF32;
  return tf32 ? musaSimTf32 : dtype;
}

}  // namespace

musaSimDtype matmul_class(musaSimDtype dtype) { return class_for(at::Float32Op::MATMUL, dtype); }

musaSimDtype convolution_class(musaSimDtype dtype) {
  const at::Context& context = at::globalContext();
  if (!context.userEnabledCuDNN()) {
    return matmul_class(dtype);  // torch's own convolution unfolds the image and multiplies
  }
  return dtype == musaSimFp32 && context.allowTF32CuDNN(at::Float32Op::CONV) ? musaSimTf32 : dtype;
}

}  // namespace musa
