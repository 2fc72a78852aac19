// Free blocks that may serve one another's requests: the default store of a card, or one private pool's.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <memory>
#include <set>
#include <tuple>

#include "backend/runtime/allocator/block.h"
#include "backend/runtime/allocator/custom_allocator.h"

namespace musa::allocator {

constexpr c10::MempoolId_t kDefaultPool{0, 0};

struct BestFit {
  bool operator()(const Block* a, const Block* b) const {
    return std::tie(a->stream, a->size, a->address) < std::tie(b->stream, b->size, b->address);
  }
};
using FreeBlocks = std::set<Block*, BestFit>;

struct BlockStore {
  explicit BlockStore(c10::MempoolId_t id) : id(id) {}

  FreeBlocks& free_blocks(PoolKind kind) { return free[static_cast<int>(kind)]; }
  bool is_private() const { return id != kDefaultPool; }
  /// Nobody holds the pool any more: its unused segments may go back to the card.
  bool releasable() const { return !is_private() || uses == 0; }

  const c10::MempoolId_t id;
  FreeBlocks free[2];
  int uses = 0;             // who holds a private pool: its creator, each route into it, each graph
  size_t segments = 0;
  bool serves_when_full = false;  // lends free blocks to requests that would otherwise be out of memory
  bool splits = true;
  std::shared_ptr<const CustomAllocator> source;  // where segments come from; nullptr: the card
};

}  // namespace musa::allocator
