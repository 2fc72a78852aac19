// c10 streams over runtime streams: 32 per card and priority, handed out in turn, as CUDA's pool does.
#pragma once

#include <c10/core/Stream.h>

#include "backend/runtime/device.h"
#include "musart/musart_sim.h"

namespace musa {

/// -1 means the current card in all of these.
c10::Stream default_stream(c10::DeviceIndex device = -1);
c10::Stream current_stream(c10::DeviceIndex device = -1);
void set_current_stream(c10::Stream stream);
c10::Stream stream_from_pool(c10::DeviceIndex device = -1, int priority = 0);

/// The runtime's handle behind a c10 stream.
musaStream_t native_stream(c10::Stream stream);
/// Handle of the calling thread's current stream on `device` (an index in range). Hot path.
musaStream_t current_native_stream(c10::DeviceIndex device);

}  // namespace musa
