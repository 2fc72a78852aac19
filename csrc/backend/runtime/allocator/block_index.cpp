#include "backend/runtime/allocator/block_index.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <mutex>

namespace musa::allocator {

BlockIndex block_index;

namespace {

// Zeroed address space that costs memory only where it is written; never given back.
void* reserve_zeroed(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(
      memory != MAP_FAILED, "MUSA: the host refused ", bytes,
      " bytes of address space for the allocator's block index; raise the limit of address space (ulimit -v).");
  return memory;
}

// Slot tables come from chunks of 1 MiB, which keeps the number of mappings small.
std::atomic<Block*>* new_slots() {
  constexpr size_t kTable = kSlots * sizeof(std::atomic<Block*>);
  constexpr size_t kChunk = size_t{1} << 20;
  static std::mutex* mutex = new std::mutex;
  static char* chunk = nullptr;
  static size_t used = kChunk;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (used + kTable > kChunk) {
    chunk = static_cast<char*>(reserve_zeroed(kChunk));
    used = 0;
  }
  void* table = chunk + used;
  used += kTable;
  return static_cast<std::atomic<Block*>*>(table);
}

// Runs in a signal handler: reads only. Blocks never go back to the host, so a stale pointer is still a block.
int lookup_for_fault(const void* address, const void** begin, size_t* size) {
  const uintptr_t target = reinterpret_cast<uintptr_t>(address);
  if (block_index.granules == 0 || !musart::is_device_pointer(address)) {
    return 0;
  }
  const uintptr_t card_start =
      block_index.base + static_cast<uintptr_t>(musart::device_of(address)) * musaSimArenaInfo.stride;
  const size_t lowest = (card_start - block_index.base) >> kGranuleShift;
  size_t granule = (target - block_index.base) >> kGranuleShift;
  size_t slot = ((target - block_index.base) >> kSlotShift) & (kSlots - 1);
  for (;; --granule, slot = kSlots - 1) {
    const Granule& entry = block_index.table[granule];
    const auto* slots = entry.slots.load(std::memory_order_acquire);
    const Block* block = nullptr;
    for (; slots && slot > 0 && !block; --slot) {
      block = slots[slot].load(std::memory_order_acquire);
    }
    if (!block) {
      block = entry.first.load(std::memory_order_acquire);
    }
    if (block) {
      if (target - block->address >= block->size || block->state != BlockState::kAllocated) {
        return 0;
      }
      *begin = reinterpret_cast<const void*>(block->address);
      *size = block->size;
      return 1;
    }
    if (granule == lowest) {
      return 0;
    }
  }
}

}  // namespace

void create_block_index() {
  const musaSimArena& arena = musaSimArenaInfo;
  const size_t bytes = arena.stride * static_cast<size_t>(arena.cards);
  const size_t granules = (bytes >> kGranuleShift) + 1;
  block_index.table = static_cast<Granule*>(reserve_zeroed(granules * sizeof(Granule)));
  block_index.base = arena.base;
  block_index.granules = granules;
  musaSimSetBlockLookup(lookup_for_fault);
}

void index_block(uintptr_t address, Block* block) {
  const uintptr_t offset = address - block_index.base;
  Granule& entry = block_index.table[offset >> kGranuleShift];
  const size_t slot = (offset >> kSlotShift) & (kSlots - 1);
  if (slot == 0) {
    entry.first.store(block, std::memory_order_release);
    return;
  }
  std::atomic<Block*>* slots = entry.slots.load(std::memory_order_acquire);
  if (!slots) {
    // Two cards can meet in one granule when a card's memory is no multiple of 2 MiB.
    std::atomic<Block*>* fresh = new_slots();
    if (entry.slots.compare_exchange_strong(slots, fresh, std::memory_order_acq_rel)) {
      slots = fresh;
    }
  }
  slots[slot].store(block, std::memory_order_release);
}

}  // namespace musa::allocator
