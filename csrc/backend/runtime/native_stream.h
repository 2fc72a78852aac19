// Another handle behind the calling thread's current stream.
#pragma once

#include "backend/runtime/stream.h"

namespace musa {

/// Makes `stream` what the calling thread launches on while its current stream of the card stays the same, and returns
/// the handle before; to be put back.
musaStream_t exchange_native_stream(c10::DeviceIndex device, musaStream_t stream);

}  // namespace musa
