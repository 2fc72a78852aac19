#include "backend/runtime/allocator/pool_state.h"

#include <unordered_map>

#include "backend/runtime/allocator/block_index.h"
#include "backend/runtime/allocator/card_pool.h"
#include "musart/musart_races.h"

namespace musa {
namespace allocator {

std::vector<PoolBlock> CardPool::state_of(c10::MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reap_deferred();
  held_store(id);
  std::vector<PoolBlock> state;
  for_each_block([&](const Block* block) {
    if (block->store->id == id && block->state == BlockState::kAllocated) {
      state.push_back({block->address, block->size, block->requested});
    }
  });
  return state;
}

std::vector<uintptr_t> CardPool::restore(c10::MempoolId_t id, const std::vector<PoolBlock>& state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reap_deferred();
  BlockStore& store = held_store(id);
  std::unordered_map<uintptr_t, PoolBlock> missing;
  for (const PoolBlock& wanted : state) {
    missing.emplace(wanted.address, wanted);
  }
  for_each_block([&](const Block* block) {
    if (block->store->id == id && block->state == BlockState::kAllocated) {
      const auto known = missing.find(block->address);
      TORCH_CHECK(
          known != missing.end() && known->second.size == block->size, "MUSA: ", block->size, " bytes at ",
          reinterpret_cast<const void*>(block->address),
          " of the memory pool are in use that were not when its state was taken; free the tensor before the state is "
          "restored.");
      missing.erase(known);
    }
  });
  // A block is free in the pool or it isn't: all are looked for before the first is taken.
  for (const auto& [address, wanted] : missing) {
    bool found = false;
    for_each_block([&](const Block* block) {
      found |= block->store->id == id && block->state == BlockState::kFree && block->address <= wanted.address &&
          wanted.address + wanted.size <= block->address + block->size;
    });
    TORCH_CHECK(
        found, "MUSA: ", wanted.size, " bytes at ", reinterpret_cast<const void*>(address),
        " belong to the state of a memory pool and aren't free in it any more.");
  }
  std::vector<uintptr_t> taken;
  for (const auto& [address, wanted] : missing) {
    claim(store, wanted);
    taken.push_back(address);
  }
  return taken;
}

// The lock is held, and a free block of the pool has the range.
Block* CardPool::claim(BlockStore& store, const PoolBlock& wanted) {
  Block* block = nullptr;
  for_each_block([&](Block* each) {
    if (each->store == &store && each->state == BlockState::kFree && each->address <= wanted.address &&
        wanted.address + wanted.size <= each->address + each->size) {
      block = each;
    }
  });
  TORCH_INTERNAL_ASSERT(block);
  remove(block);
  if (block->address < wanted.address) {
    Block* rest = cut(block, wanted.address - block->address);
    rest->state = BlockState::kAllocated;  // what is filed next must not merge with it
    insert(block);
    block = rest;
  }
  if (block->size > wanted.size) {
    insert(cut(block, wanted.size));
  }
  block->state = BlockState::kAllocated;
  block->requested = wanted.requested;
  live_.allocated(block->kind, block->size, block->requested);
  musaSimBlockTaken(reinterpret_cast<void*>(block->address), block->size, block->stream);
  return block;
}

}  // namespace allocator

std::vector<PoolBlock> pool_state(c10::DeviceIndex device, c10::MempoolId_t id) {
  return allocator::card_pool(device).state_of(id);
}

std::vector<uintptr_t> restore_pool_state(
    c10::DeviceIndex device, c10::MempoolId_t id, const std::vector<PoolBlock>& state) {
  return allocator::card_pool(device).restore(id, state);
}

}  // namespace musa
