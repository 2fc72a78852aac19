// From the value of a Dtype to a C++ type.
#pragma once

#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

/// body(T{}) with the C++ type of `dtype`.
template <class F>
MUDNN_INLINE void for_dtype(Dtype dtype, F&& body) {
  switch (dtype) {
    case Dtype::kFloat32:
      body(float{});
      break;
    case Dtype::kBfloat16:
      body(Bfloat16{});
      break;
    case Dtype::kFloat16:
      body(Float16{});
      break;
  }
}

}  // namespace
}  // namespace mudnn
