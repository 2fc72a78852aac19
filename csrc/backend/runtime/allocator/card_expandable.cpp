// Expandable segments of a card's pool: one per store, stream and kind of block, as long as addresses last.
#include <c10/core/AllocatorConfig.h>

#include <algorithm>

#include "backend/runtime/allocator/block_index.h"
#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/allocator/history.h"
#include "backend/runtime/device_scope.h"
#include "musart/virtual_memory.h"

namespace musa::allocator {

namespace {

uintptr_t end_of(const Block* block) { return block->address + block->size; }

}  // namespace

// The first unmapped block that, with the free block in front of it, has room for `size`; a new segment when no segment
// has. nullptr when there are no addresses.
Block* CardPool::find_room(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream) {
  for (const auto& [address, segment] : expandable_) {
    Block* block = find_block(reinterpret_cast<const void*>(address));
    if (block->store != &store || block->kind != kind || block->stream != stream) {
      continue;
    }
    for (; block; block = block->next) {
      if (block->state != BlockState::kUnmapped) {
        continue;
      }
      const Block* before = block->previous;
      const size_t free_before = before && before->state == BlockState::kFree ? before->size : 0;
      if (free_before + block->size >= size) {
        return block;
      }
    }
  }
  return reserve_segment(store, kind, size, stream);
}

Block* CardPool::reserve_segment(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream) {
  // The card has addresses for twice its memory: one stream's large blocks may have half of them.
  const size_t wish = kind == PoolKind::kSmall ? capacity_ / 16 : capacity_;
  size_t reserved = round_up(std::max(wish, size), kPage);
  void* address = nullptr;
  {
    const DeviceScope scope(device_);
    last_failure_ = scope.status() == musaSuccess ? musaSimReserveAddresses(&address, &reserved, round_up(size, kPage))
                                                  : scope.status();
  }
  if (last_failure_ != musaSuccess) {
    last_failure_detail_ = musaSimGetLastErrorDetail();
    musaGetLastError();
    return nullptr;
  }
  Block* block = new_block();
  block->address = reinterpret_cast<uintptr_t>(address);
  block->size = reserved;
  block->stream = stream;
  block->store = &store;
  block->kind = kind;
  block->traits = store.is_private() ? kOfPrivatePool : 0;
  block->expandable = true;
  block->state = BlockState::kUnmapped;
  index_block(block->address, block);
  expandable_.emplace(block->address, ExpandableSegment{block->address, reserved, 0});
  ++store.segments;
  change(counted_.segment, kind, 1);
  return block;
}

ExpandableSegment& CardPool::segment_of(const Block* block) {
  return std::prev(expandable_.upper_bound(block->address))->second;
}

void CardPool::count_mapped(const Block* block, int64_t bytes) {
  segment_of(block).mapped += static_cast<size_t>(bytes);
  ++(bytes > 0 ? counted_.num_device_alloc : counted_.num_device_free);
  change(counted_.reserved_bytes, block->kind, bytes);
  reserved_now_.fetch_add(bytes);
  if (block->store->is_private()) {
    change_private(block->store->id, block->kind, bytes);
  }
}

// A block of at least `size` bytes, in no set.
Block* CardPool::grow_expandable(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream) {
  Block* room = find_room(store, kind, size, stream);
  if (!room) {
    return nullptr;
  }
  Block* before = room->previous && room->previous->state == BlockState::kFree ? room->previous : nullptr;
  const size_t needed = round_up(size - (before ? before->size : 0), kPage);
  const size_t step = kind == PoolKind::kSmall
      ? kSmallSegment
      : c10::CachingAllocator::AcceleratorAllocatorConfig::large_segment_size();
  for (const size_t wish : {std::min(round_up(needed, round_up(step, kPage)), room->size), needed}) {
    if (map_front(room, wish)) {
      // The mapped part is `room` now; what lies around it and is free belongs to it.
      if (room->next && room->next->state == BlockState::kFree) {
        remove(room->next);
        absorb_next(room);
      }
      if (before) {
        remove(before);
        room = absorb_next(before);
      }
      return room;
    }
  }
  if (segment_of(room).mapped == 0) {
    release_addresses(room);
  }
  return nullptr;
}

// Puts memory behind the first `size` bytes of an unmapped block, which becomes that part.
bool CardPool::map_front(Block* block, size_t size) {
  const auto allowed = static_cast<size_t>(fraction_ * static_cast<double>(capacity_));
  beyond_fraction_ = fraction_set_ && (size > allowed || static_cast<size_t>(reserved_now_.load()) > allowed - size);
  last_failure_ =
      beyond_fraction_ ? musaErrorMemoryAllocation : musaSimMapMemory(reinterpret_cast<void*>(block->address), size);
  if (last_failure_ != musaSuccess) {
    last_failure_detail_ = beyond_fraction_ ? "" : musaSimGetLastErrorDetail();
    musaGetLastError();
    return false;
  }
  if (size < block->size) {
    cut(block, size)->state = BlockState::kUnmapped;
  }
  block->state = BlockState::kAllocated;  // in no set, on its way to the caller
  count_mapped(block, static_cast<int64_t>(size));
  trace_segment(TraceEntry::SEGMENT_MAP, block);
  return true;
}

// Returns the whole pages of a free block, which is in its set, to the card.
void CardPool::unmap(Block* block) {
  const uintptr_t begin = round_up(block->address, kPage);
  const uintptr_t end = end_of(block) / kPage * kPage;
  if (begin >= end) {
    return;
  }
  remove(block);
  if (end < end_of(block)) {
    insert(cut(block, end - block->address));
  }
  if (begin > block->address) {
    Block* pages = cut(block, begin - block->address);
    insert(block);
    block = pages;
  }
  trace_segment(TraceEntry::SEGMENT_UNMAP, block);
  musaSimUnmapMemory(reinterpret_cast<void*>(block->address), block->size);
  count_mapped(block, -static_cast<int64_t>(block->size));
  block->state = BlockState::kUnmapped;
  if (block->next && block->next->state == BlockState::kUnmapped) {
    absorb_next(block);
  }
  if (block->previous && block->previous->state == BlockState::kUnmapped) {
    block = absorb_next(block->previous);
  }
  if (segment_of(block).mapped == 0) {
    release_addresses(block);
  }
}

// The segment's only block, without memory.
void CardPool::release_addresses(Block* block) {
  expandable_.erase(block->address);
  index_block(block->address, nullptr);
  --block->store->segments;
  change(counted_.segment, block->kind, -1);
  musaSimFreeAddresses(reinterpret_cast<void*>(block->address));
  delete_block(block);
}

}  // namespace musa::allocator
