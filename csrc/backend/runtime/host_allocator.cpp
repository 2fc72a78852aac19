#include "backend/runtime/host_allocator.h"

#include <ATen/core/CachingHostAllocator.h>

#include <chrono>
#include <cstring>
#include <mutex>

#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/stream.h"
#include "backend/runtime/stream_marker.h"
#include "musart/musart_races.h"

namespace musa {

namespace {

// torch's caching scheme over the runtime's page-locked memory.
class PinnedCache final : public at::CachingHostAllocatorImpl<c10::Stream, StreamMarker> {
 public:
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  void allocate_host_memory(size_t size, void** address) override {
    const auto start = std::chrono::steady_clock::now();
    MUSA_CHECK(musaMallocHost(address, size));
    add_time(stats_.host_alloc_time, start);
  }
  void free_block(at::HostBlock<c10::Stream>* block) override {
    const auto start = std::chrono::steady_clock::now();
    musaFreeHost(block->ptr_);
    add_time(stats_.host_free_time, start);
  }
  void add_time(c10::CachingAllocator::DurationStat& stat, std::chrono::steady_clock::time_point start) {
    const auto spent = std::chrono::steady_clock::now() - start;
    const std::lock_guard<std::mutex> lock(stats_.timing_mutex_);
    stat.increase(std::chrono::duration_cast<std::chrono::microseconds>(spent).count());
  }
  void record_stream(std::optional<std::vector<StreamMarker>>& markers, c10::Stream stream) override {
    markers->emplace_back(native_stream(stream));
  }
  bool query_event(StreamMarker& marker) override { return marker.done(); }
  c10::Stream get_current_stream() const override { return current_stream(); }
  bool stream_is_capturing(c10::Stream /*stream*/) const override { return false; }
};

void delete_pinned(void* block);

class PinnedAllocator final : public at::CachingHostAllocatorInterface<PinnedCache, &delete_pinned> {
 public:
  at::DataPtr allocate(size_t size) override {
    ensure_initialized();
    at::DataPtr block = CachingHostAllocatorInterface::allocate(size);
    musaSimBlockSettled(block.get(), size, nullptr);  // its former users are done, or the cache had kept it
    return block;
  }
};

PinnedAllocator* pinned_allocator() {
  static auto* instance = new PinnedAllocator;  // leaked: tensors are freed after static destructors ran
  return instance;
}

// In a forked child the cache's locks may be held by threads that don't exist there.
void delete_pinned(void* block) {
  if (!musaSimInBadFork()) {
    pinned_allocator()->free(block);
  }
}

const at::HostAllocatorRegistry<kMusa> registered(pinned_allocator());

}  // namespace

at::Allocator* host_allocator() { return pinned_allocator(); }

void record_pinned_use(const c10::DataPtr& data, c10::Stream stream) {
  pinned_allocator()->record_event(data.get(), data.get_context(), stream);
}

bool is_pinned(const void* address) {
  if (!address || !musaSimIsInitialized() || musaSimInBadFork()) {
    return false;
  }
  musaPointerAttributes attributes{};
  if (musaPointerGetAttributes(&attributes, address) != musaSuccess) {
    musaGetLastError();
    return false;
  }
  return attributes.type == musaMemoryTypeHost;
}

}  // namespace musa
