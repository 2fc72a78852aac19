#include "backend/runtime/allocator/private_pools.h"

#include <atomic>

#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/device.h"

namespace musa {

using allocator::card_pool;

c10::MempoolId_t new_pool_id(bool for_user) {
  static std::atomic<c10::CaptureId_t> users{1};
  static std::atomic<c10::CaptureId_t> captures{1};
  return for_user ? c10::MempoolId_t{0, users++} : c10::MempoolId_t{captures++, 0};
}

void retain_pool(c10::DeviceIndex device, c10::MempoolId_t id) { card_pool(device).retain(id); }

void release_pool(c10::DeviceIndex device, c10::MempoolId_t id) { card_pool(device).release_hold(id); }

int pool_use_count(c10::DeviceIndex device, c10::MempoolId_t id) { return card_pool(device).uses(id); }

void begin_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t id, StreamFilter filter, RouteUse use) {
  card_pool(device).begin_route(id, std::move(filter), use);
}

void begin_allocate_current_thread_to_pool(c10::DeviceIndex device, c10::MempoolId_t id) {
  begin_allocate_to_pool(
      device, id, [me = std::this_thread::get_id()](musaStream_t) { return std::this_thread::get_id() == me; });
}

void end_allocate_to_pool(c10::DeviceIndex device, c10::MempoolId_t id) { card_pool(device).end_route(id); }

void set_pool_traits(c10::DeviceIndex device, c10::MempoolId_t id, PoolTraits traits) {
  card_pool(device).set_traits(id, traits);
}

bool pool_holds_exactly(
    c10::DeviceIndex device, c10::MempoolId_t id, const std::unordered_set<const void*>& addresses) {
  return card_pool(device).holds_exactly(id, addresses);
}

void empty_cache(c10::MempoolId_t id) {
  const c10::DeviceIndex cards = device_count();
  for (c10::DeviceIndex device = 0; device < cards; ++device) {
    if (allocator::CardPool* pool = allocator::existing_pool(device)) {
      ensure_initialized();
      pool->empty_cache(id);
    }
  }
}

}  // namespace musa
