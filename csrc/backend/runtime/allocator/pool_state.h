// What is allocated in a private pool, remembered and brought back: graphs that share a pool replay without allocating,
// so that before the next recording the allocator is told what their results occupy.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdint>
#include <vector>

namespace musa {

struct PoolBlock {
  uintptr_t address = 0;
  size_t size = 0;
  size_t requested = 0;
};

/// The blocks that are allocated in a pool; throws when nobody holds it.
std::vector<PoolBlock> pool_state(c10::DeviceIndex device, c10::MempoolId_t id);
/// Allocates what `state` has and the pool hasn't, at the same addresses, and returns these; nobody owns them yet.
/// Throws, and changes nothing, when the pool has a block that the state hasn't, or something else lies there.
std::vector<uintptr_t> restore_pool_state(
    c10::DeviceIndex device, c10::MempoolId_t id, const std::vector<PoolBlock>& state);

}  // namespace musa
