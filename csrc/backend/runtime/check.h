// Turns a runtime status into the torch error a CUDA user expects.
#pragma once

#include "musart/musart.h"

namespace musa {

/// Throws: c10::OutOfMemoryError for both kinds of exhaustion, c10::AcceleratorError-like RuntimeError otherwise.
/// The text names the call, the card and what to do. Never returns.
[[noreturn]] void throw_runtime_error(musaError_t status, const char* call);

}  // namespace musa

/// Evaluates a runtime call once and throws when it failed.
#define MUSA_CHECK(call)                                         \
  do {                                                           \
    const musaError_t musa_check_status = (call);                \
    if (__builtin_expect(musa_check_status != musaSuccess, 0)) { \
      ::musa::throw_runtime_error(musa_check_status, #call);     \
    }                                                            \
  } while (0)
