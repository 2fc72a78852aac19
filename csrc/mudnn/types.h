// Element types of the kernels.
#pragma once

#include <stdint.h>

namespace mudnn {

enum class Dtype : uint8_t { kFloat32, kBfloat16, kFloat16 };

/// The bits of a 16-bit number; arithmetic is done in float32.
struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

}  // namespace mudnn
