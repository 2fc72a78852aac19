// Handles of the management library: entries of tables, so that any pointer can be checked before it is used.
#pragma once

#include "mtml/mtml.h"
#include "musart/musart_observe.h"

struct mtmlDevice {
  unsigned index;
};

struct mtmlGpu {
  mtmlDevice* device;
};

struct mtmlMemory {
  mtmlDevice* device;
};

namespace mtml {

// The card behind a handle; MTML_ERROR_INVALID_ARGUMENT for a pointer that is no handle of this kind or when `result`
// is NULL, MTML_ERROR_DRIVER_NOT_LOADED when the library isn't initialised.
mtmlReturn card_of(const mtmlDevice* device, const void* result, int* card);
mtmlReturn card_of(const mtmlGpu* gpu, const void* result, int* card);
mtmlReturn card_of(const mtmlMemory* memory, const void* result, int* card);

mtmlReturn describe(int card, musaSimCardInfo* info);
mtmlReturn observe(int card, musaSimCardState* state);
mtmlDevice* device_at(int card);

// A status of the runtime as one of this library.
mtmlReturn translate(musaError_t error);

// Copies with the final zero; MTML_ERROR_INSUFFICIENT_SIZE when it doesn't fit.
mtmlReturn write_text(const char* text, char* to, unsigned length);

inline unsigned percent(double share) { return static_cast<unsigned>(share * 100 + 0.5); }

}  // namespace mtml

// Leaves the calling function with the status of `call` unless it succeeded.
#define MTML_TRY(call)                                   \
  do {                                                   \
    const mtmlReturn mtml_status = (call);               \
    if (mtml_status != MTML_SUCCESS) return mtml_status; \
  } while (0)
