// How every part of the runtime reports a failure: a code and one sentence, both kept for the calling thread.
#pragma once

#include "musart/musart.h"

namespace musart {

// Records `error` with its sentence as the calling thread's last error and returns it.
musaError_t fail(musaError_t error, const char* format, ...) __attribute__((format(printf, 2, 3)));

// One line on stderr, prefixed with the project's name.
void warn(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace musart

// Leaves the calling function with the status of `call` unless it succeeded.
#define MUSART_TRY(call)                                    \
  do {                                                      \
    const musaError_t musart_status = (call);               \
    if (musart_status != musaSuccess) return musart_status; \
  } while (0)
