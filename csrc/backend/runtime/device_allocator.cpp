// The c10 face of the caching allocator: DataPtr factory and torch.accelerator.memory_*.
#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/allocator/private_pools.h"
#include "backend/runtime/caching_allocator.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/device_scope.h"
#include "backend/runtime/stream.h"

namespace musa {

namespace {

using c10::CachingDeviceAllocator::DeviceStats;

void delete_block(void* device_pointer) { free_block(device_pointer); }

// Statistics of a card that was never used are zero; asking doesn't initialise anything.
allocator::CardPool* pool_to_ask(c10::DeviceIndex device) {
  const c10::DeviceIndex cards = device_count_checked();
  TORCH_CHECK(
      device >= 0 && device < cards, "MUSA: there is no card ", static_cast<int>(device), "; this process sees ",
      static_cast<int>(cards), cards == 1 ? " card." : " cards.");
  return allocator::existing_pool(device);
}

class MusaAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    const c10::DeviceIndex device = current_device();
    void* data = nbytes ? allocate_block(nbytes, device, current_native_stream(device)) : nullptr;
    return {data, data, &delete_block, c10::Device(kMusa, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    if (bytes) {
      ensure_initialized();
      const auto device = static_cast<c10::DeviceIndex>(musart::device_of(to));
      MUSA_CHECK(musaMemcpyAsync(to, from, bytes, musaMemcpyDeviceToDevice, current_native_stream(device)));
    }
  }

  bool initialized() override { return musaSimIsInitialized() != 0; }

  void emptyCache(c10::MempoolId_t pool) override { empty_cache(pool); }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get()) {
      record_block_stream(data.get(), native_stream(stream));
    }
  }

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    allocator::CardPool* pool = pool_to_ask(device);
    return pool ? pool->stats() : DeviceStats{};
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    if (allocator::CardPool* pool = pool_to_ask(device)) {
      pool->reset_accumulated_stats();
    }
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    if (allocator::CardPool* pool = pool_to_ask(device)) {
      pool->reset_peak_stats();
    }
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    ensure_initialized();
    const DeviceScope scope(resolve_device(device));
    MUSA_CHECK(scope.status());
    size_t free = 0;
    size_t total = 0;
    MUSA_CHECK(musaMemGetInfo(&free, &total));
    return {free, total};
  }
};

}  // namespace

c10::DeviceAllocator* device_allocator() {
  static auto* instance = new MusaAllocator;
  return instance;
}

namespace {
const c10::AllocatorRegisterer<kMusa> registered(device_allocator());
}  // namespace

}  // namespace musa
