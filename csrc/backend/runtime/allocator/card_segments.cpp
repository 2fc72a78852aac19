// How a card's pool grows and shrinks: segments from the runtime, garbage collection, out of memory.
#include <c10/core/AllocatorConfig.h>

#include <algorithm>

#include "backend/runtime/allocator/block_index.h"
#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/allocator/history.h"
#include "backend/runtime/allocator/thread_bins.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device_scope.h"
#include "musart/musart_faults.h"

namespace musa::allocator {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

namespace {

size_t segment_size(PoolKind kind, size_t size) {
  if (kind == PoolKind::kSmall) {
    return kSmallSegment;
  }
  const size_t segment = AcceleratorAllocatorConfig::large_segment_size();
  return size < std::min(kMinLargeAlloc, segment) ? segment : round_up(size, kLargeRound);
}

// The card's own memory, or what the program's allocator gives.
musaError_t obtain(const CustomAllocator* source, int device, size_t size, musaStream_t stream, void** address) {
  const DeviceScope scope(device);
  if (scope.status() != musaSuccess) {
    return scope.status();
  }
  if (!source) {
    return musaMalloc(address, size);
  }
  *address = source->allocate(size, device, stream);
  return *address ? musaSuccess : musaErrorMemoryAllocation;
}

}  // namespace

// A nearly full card has no room for a standard segment: what was asked for may still fit.
Block* CardPool::grow(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream) {
  if (AcceleratorAllocatorConfig::use_expandable_segments() && !store.source) {
    if (Block* block = grow_expandable(store, kind, size, stream)) {
      return block;
    }
    if (last_failure_ != musaErrorMemoryAllocation || beyond_fraction_) {
      return nullptr;
    }
  }
  const size_t standard = segment_size(kind, size);
  Block* block = allocate_segment(store, kind, standard, standard, stream);
  return block || standard == size ? block : allocate_segment(store, kind, size, size, stream);
}

// `requested` is what a custom allocator is asked for; the segment counts `size`.
Block* CardPool::allocate_segment(
    BlockStore& store, PoolKind kind, size_t size, size_t requested, musaStream_t stream) {
  const auto allowed = static_cast<size_t>(fraction_ * static_cast<double>(capacity_));
  const auto reserved = static_cast<size_t>(reserved_now_.load());
  beyond_fraction_ = fraction_set_ && (size > allowed || reserved > allowed - size);
  if (beyond_fraction_) {
    last_failure_ = musaErrorMemoryAllocation;
    return nullptr;
  }
  void* address = nullptr;
  last_failure_ = obtain(store.source.get(), device_, requested, stream, &address);
  if (last_failure_ != musaSuccess) {
    last_failure_detail_ = musaSimGetLastErrorDetail();
    musaGetLastError();  // the failure is handled here: a later check must not find it
    return nullptr;
  }
  ++counted_.num_device_alloc;
  change(counted_.segment, kind, 1);
  change(counted_.reserved_bytes, kind, static_cast<int64_t>(size));
  reserved_now_.fetch_add(static_cast<int64_t>(size));
  ++store.segments;
  if (store.is_private()) {
    change_private(store.id, kind, static_cast<int64_t>(size));
  }
  if (size >= AcceleratorAllocatorConfig::max_split_size()) {
    counted_.oversize_segments.increase(1);
  }
  Block* block = new_block();
  block->address = reinterpret_cast<uintptr_t>(address);
  block->size = size;
  block->stream = stream;
  block->store = &store;
  block->kind = kind;
  block->requested = requested;
  block->traits = store.is_private() ? kOfPrivatePool : 0;
  segments_.emplace(block->address, size);
  index_block(block->address, block);
  trace_segment(TraceEntry::SEGMENT_ALLOC, block);
  return block;
}

// A free block that is a whole segment, still in its set.
void CardPool::release_segment(Block* block) {
  remove(block);
  drop_segment(block);
}

void CardPool::drop_segment(Block* block) {
  trace_segment(TraceEntry::SEGMENT_FREE, block);
  index_block(block->address, nullptr);
  segments_.erase(block->address);
  ++counted_.num_device_free;
  change(counted_.segment, block->kind, -1);
  change(counted_.reserved_bytes, block->kind, -static_cast<int64_t>(block->size));
  reserved_now_.fetch_sub(static_cast<int64_t>(block->size));
  --block->store->segments;
  if (block->store->is_private()) {
    change_private(block->store->id, block->kind, -static_cast<int64_t>(block->size));
  }
  if (block->size >= AcceleratorAllocatorConfig::max_split_size()) {
    counted_.oversize_segments.decrease(1);
  }
  {
    const DeviceScope scope(device_);
    void* address = reinterpret_cast<void*>(block->address);
    if (const CustomAllocator* source = block->store->source.get()) {
      source->free(address, block->traits & kUncached ? block->requested : block->size, device_, block->stream);
    } else {
      musaFree(address);
    }
  }
  delete_block(block);
}

// Past the cache: a segment of its own for each block.
Block* CardPool::take_uncached(size_t size, size_t requested, musaStream_t stream) {
  ++tick_;
  reap_deferred();
  const PoolKind kind = kind_of(size);
  Block* block = allocate_segment(default_, kind, size, requested, stream);
  if (!block) {
    ++counted_.num_alloc_retries;
    absorb(detach_bins(device_, nullptr));
    wait_deferred();
    release_cached();
    block = allocate_segment(default_, kind, size, requested, stream);
  }
  if (block) {
    block->traits |= kUncached;
    block->state = BlockState::kAllocated;
    if (size >= AcceleratorAllocatorConfig::max_split_size()) {
      counted_.oversize_allocations.increase(1);
    }
  }
  return block;
}

void CardPool::release_cached() {
  release_cached(default_);
  for (auto it = private_.begin(); it != private_.end();) {
    const c10::MempoolId_t id = it->first;
    BlockStore& store = *it++->second;
    if (store.releasable()) {
      release_cached(store);
      drop_if_gone(id);
    }
  }
}

void CardPool::release_cached(BlockStore& store) {
  for (FreeBlocks& blocks : store.free) {
    for (Block* block : std::vector<Block*>(blocks.begin(), blocks.end())) {
      if (block->expandable) {
        unmap(block);
      } else if (!block->previous && !block->next) {
        release_segment(block);
      }
    }
  }
}

// Above the threshold, whole large segments go back to the card, those unused for longest first, until the new
// request fits under it again.
void CardPool::collect_garbage(size_t size) {
  const double threshold = AcceleratorAllocatorConfig::garbage_collection_threshold();
  if (threshold <= 0.0) {
    return;
  }
  const double limit = threshold * fraction_ * static_cast<double>(capacity_);
  const auto over = [&] { return static_cast<double>(reserved_now_.load()) + static_cast<double>(size) > limit; };
  if (!over()) {
    return;
  }
  std::vector<Block*> whole;
  for (Block* block : default_.free_blocks(PoolKind::kLarge)) {
    if (!block->expandable && !block->previous && !block->next) {
      whole.push_back(block);
    }
  }
  std::sort(whole.begin(), whole.end(), [](const Block* a, const Block* b) {
    return std::pair(a->freed_at, a->address) < std::pair(b->freed_at, b->address);
  });
  for (Block* block : whole) {
    if (!over()) {
      return;
    }
    release_segment(block);
  }
}

void CardPool::empty_cache(c10::MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (id == kDefaultPool) {
    absorb(detach_bins(device_, nullptr));
    wait_deferred();
    release_cached();
    return;
  }
  BlockStore* store = existing_store(id);
  if (store && store->releasable()) {
    wait_deferred();
    release_cached(*store);
    drop_if_gone(id);
  }
}

void CardPool::set_fraction(double fraction) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fraction_ = fraction;
  fraction_set_ = true;
}

double CardPool::fraction() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return fraction_;
}

void CardPool::trace_living_blocks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for_each_block([](Block* block) {
    if (block->state == BlockState::kAllocated) {
      block->traits |= kTraced;
    }
  });
}

void CardPool::describe_out_of_memory(size_t requested, OutOfMemory& facts) {
  counted_.num_ooms += musaSimCardHealth(device_) == musaSuccess ? 1 : 0;
  facts.device = device_;
  facts.requested = requested;
  facts.capacity = capacity_;
  facts.allocated = static_cast<size_t>(live_.current(LiveStats::kAll).bytes);
  facts.reserved = static_cast<size_t>(reserved_now_.load());
  facts.host_full = last_failure_ == musaErrorSimHostMemory;
  facts.detail = last_failure_detail_;
  if (fraction_set_) {
    facts.allowed = static_cast<size_t>(fraction_ * static_cast<double>(capacity_));
  }
  const DeviceScope scope(device_);
  size_t total = 0;
  musaMemGetInfo(&facts.free, &total);
}

// Without the lock: observers may be Python functions.
void CardPool::report_out_of_memory(const OutOfMemory& facts, musaStream_t stream) {
  // A dead card has no memory to give, but isn't full.
  if (const musaError_t status = musaSimCheckCard(device_, "musaMalloc"); status != musaSuccess) {
    throw_runtime_error(status, "musaMalloc");
  }
  trace_out_of_memory(device_, facts.free, facts.requested, stream);
  tell_out_of_memory_observers(device_, facts.requested, facts.capacity, facts.free);
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(facts.requested), facts.allocated, facts.reserved,
      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device_)));
  throw_out_of_memory(facts);
}

}  // namespace musa::allocator
