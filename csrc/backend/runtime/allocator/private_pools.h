// Private pools: memory that a graph or a MemPool keeps for itself, apart from the default pool of the card.
//
// A pool lives from retain_pool (or the first begin_allocate_to_pool) until as many release_pool calls came. Blocks
// freed inside a pool serve only that pool. When nobody holds it any more, its unused segments go back to the card with
// the next empty_cache, or when the card is full. All functions are thread-safe; `device` is an index in range.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <functional>
#include <memory>
#include <unordered_set>

#include "backend/runtime/allocator/custom_allocator.h"

namespace musa {

/// Which allocations go to a pool. Called with the card's pool locked, by the allocating thread: must not allocate.
using StreamFilter = std::function<bool(musaStream_t)>;

enum class RouteUse {
  kPlain,
  kCapture,  // blocks that other streams use and that are freed meanwhile stay taken until the route ends
};

/// A new id: (0, n) for a pool that a user asks for, (n, 0) for one that a capture makes for itself.
c10::MempoolId_t new_pool_id(bool for_user = true);

/// Makes the pool, or holds it once more.
void retain_pool(c10::DeviceIndex device, c10::MempoolId_t id);
/// Lets go once; throws when nobody holds the pool.
void release_pool(c10::DeviceIndex device, c10::MempoolId_t id);
/// How often the pool is held; 0 for a pool that isn't there.
int pool_use_count(c10::DeviceIndex device, c10::MempoolId_t id);

/// Sends allocations on `device` that pass the filter to the pool, which this also holds once more (end with
/// end_allocate_to_pool, then release_pool). Of several routes that fit, the youngest counts.
void begin_allocate_to_pool(
    c10::DeviceIndex device, c10::MempoolId_t id, StreamFilter filter, RouteUse use = RouteUse::kPlain);
/// The same for what the calling thread allocates.
void begin_allocate_current_thread_to_pool(c10::DeviceIndex device, c10::MempoolId_t id);
/// Ends the youngest route into the pool, the calling thread's own first. Throws when there is none.
void end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t id);

struct PoolTraits {
  std::shared_ptr<const CustomAllocator> source;  // where the pool's segments come from; nullptr: the card
  bool serves_when_full = false;  // lends its free blocks to requests that would otherwise be out of memory
  bool splits = true;  // false: a request takes a whole segment
};
/// Throws when the pool isn't there.
void set_pool_traits(c10::DeviceIndex device, c10::MempoolId_t id, PoolTraits traits);

/// True when exactly the given addresses are allocated in the pool.
bool pool_holds_exactly(c10::DeviceIndex device, c10::MempoolId_t id, const std::unordered_set<const void*>& addresses);

/// Returns unused segments to the cards: of the default pool and every pool that nobody holds, or with an id of that
/// pool alone (nothing while it is held: a graph may replay into memory that looks unused).
void empty_cache(c10::MempoolId_t id = {0, 0});

}  // namespace musa
