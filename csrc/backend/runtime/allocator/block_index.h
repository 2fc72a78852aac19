// Address -> block, without a lock: one entry per 2 MiB of the arena, and below it one slot per 512 bytes where blocks
// begin anywhere else than at its start. 8 parts in a million of the arena, committed only where memory is in use.
#pragma once

#include <atomic>

#include "backend/runtime/allocator/block.h"

namespace musa::allocator {

constexpr int kGranuleShift = 21;
constexpr int kSlotShift = 9;
constexpr size_t kSlots = size_t{1} << (kGranuleShift - kSlotShift);

struct Granule {
  std::atomic<Block*> first;  // the block at the granule's very start
  std::atomic<std::atomic<Block*>*> slots;
};

struct BlockIndex {
  uintptr_t base = 0;
  size_t granules = 0;  // 0 until the index is created
  Granule* table = nullptr;
};

extern BlockIndex block_index;

/// Creates the index for the arena and registers the lookup of the fault handler. Call once, after initialisation.
void create_block_index();
/// Enters (or, with nullptr, removes) the block that begins at `address`. Call with the card's pool locked.
void index_block(uintptr_t address, Block* block);

/// The block that begins at `address`, nullptr when there is none.
inline Block* find_block(const void* address) noexcept {
  const uintptr_t offset = reinterpret_cast<uintptr_t>(address) - block_index.base;
  const size_t granule = offset >> kGranuleShift;
  if (__builtin_expect(granule >= block_index.granules, 0)) {
    return nullptr;
  }
  const Granule& entry = block_index.table[granule];
  const size_t slot = (offset >> kSlotShift) & (kSlots - 1);
  Block* block = nullptr;
  if (slot == 0) {
    block = entry.first.load(std::memory_order_acquire);
  } else if (const auto* slots = entry.slots.load(std::memory_order_acquire)) {
    block = slots[slot].load(std::memory_order_acquire);
  }
  return block && block->address == reinterpret_cast<uintptr_t>(address) ? block : nullptr;
}

}  // namespace musa::allocator
