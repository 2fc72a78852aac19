// Which instruction set the kernels use: the best that this CPU has, or a lower one that TORCH_MUSA_SIM_ISA names.
#pragma once

namespace mudnn {

/// Each level includes the ones before it. kAvx2 means AVX2, FMA and F16C; kAvx512 means F, BW, VL, DQ, VNNI and BF16.
enum class Isa { kPortable, kAvx2, kAvx512 };

/// The level in force; settled at the first call.
Isa isa();
/// The best level that this CPU and this build have.
Isa best_isa();
const char* isa_name(Isa level);

}  // namespace mudnn

/// Defines name_kernels(), the table of kernels/name.cpp for the level in force. In namespace mudnn.
#if defined(MUDNN_X86)
#define MUDNN_TABLES_OF(Type, name)                              \
  extern const Type name##_portable, name##_avx2, name##_avx512; \
  static const Type& name##_kernels() {                          \
    switch (isa()) {                                             \
      case Isa::kAvx512:                                         \
        return name##_avx512;                                    \
      case Isa::kAvx2:                                           \
        return name##_avx2;                                      \
      case Isa::kPortable:                                       \
        break;                                                   \
    }                                                            \
    return name##_portable;                                      \
  }
#else
#define MUDNN_TABLES_OF(Type, name)  \
  extern const Type name##_portable; \
  static const Type& name##_kernels() { return name##_portable; }
#endif
