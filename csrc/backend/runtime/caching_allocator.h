// The caching allocator of card memory: per-stream pools over segments of musart, with lock-free statistics.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "musart/musart_sim.h"

namespace musa {

/// Device address of at least `nbytes` bytes (rounded to 512) for use on `stream`; nullptr when nbytes is 0.
/// Throws c10::OutOfMemoryError. Hot path: small sizes come from a bin of the calling thread.
void* allocate_block(size_t nbytes, c10::DeviceIndex device, musaStream_t stream);
/// Gives a block back; `device_pointer` must come from allocate_block (nullptr is a no-op). Any thread may call it.
void free_block(void* device_pointer) noexcept;
/// The block won't be reused before what `stream` has been given so far is done.
void record_block_stream(void* device_pointer, musaStream_t stream);
/// Usable bytes of the block at `device_pointer`; 0 when it is none of ours.
size_t block_size(const void* device_pointer) noexcept;

/// The c10 face of the allocator (torch.accelerator.memory_*, DataPtr factory). Registered for PrivateUse1.
c10::DeviceAllocator* device_allocator();

/// To be called after a fault was planned or forgotten: an allocation that shall fail must not take the fast path.
void watch_for_planned_failures();

/// Upper bound of what this process may reserve on a card, as a fraction of its capacity. (0, 1].
void set_memory_fraction(double fraction, c10::DeviceIndex device);
double memory_fraction(c10::DeviceIndex device);

/// All segments with their blocks, for snapshots, or with an id those of a private pool. Takes the pool lock of each
/// card.
std::vector<c10::CachingDeviceAllocator::SegmentInfo> memory_segments(c10::MempoolId_t id = {0, 0});

}  // namespace musa
