// A block: a range of a segment that is free, in a thread's bin, allocated, or waiting for another stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "musart/musart_sim.h"

namespace musa::allocator {

class CardPool;
struct BlockStore;

constexpr size_t kMinBlock = 512;                // every size is a multiple of it
constexpr size_t kSmallSize = size_t{1} << 20;   // largest request of the small pool
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kMinLargeAlloc = size_t{10} << 20;  // from here on a request gets a segment of its own
constexpr size_t kLargeRound = size_t{2} << 20;

enum class PoolKind : uint8_t { kSmall = 0, kLarge = 1 };

enum class BlockState : uint8_t {
  kFree,      // in its card's pool
  kBinned,    // in a thread's bin
  kAllocated,
  kDeferred,  // given back, but another stream may still use it
  kUnmapped,  // addresses of an expandable segment, without memory
};

// What sends a block through the checked path when it is freed. No bit is set for almost every block.
enum BlockTrait : uint8_t {
  kUsedElsewhere = 1,  // by streams other than its own
  kOfPrivatePool = 2,  // never lies in a thread's bin
  kUncached = 4,       // a segment of its own, which goes back to where it came from at once
  kTraced = 8,         // the history wants to know
};

// Written by whoever owns the block at the moment, also read by the owner of a neighbour; that needs no order.
class AtomicBlockState {
 public:
  AtomicBlockState() = default;
  AtomicBlockState& operator=(BlockState state) noexcept {
    value_.store(state, std::memory_order_relaxed);
    return *this;
  }
  operator BlockState() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<BlockState> value_{BlockState::kFree};
};

struct Block {
  uintptr_t address = 0;
  size_t size = 0;
  size_t requested = 0;
  musaStream_t stream = nullptr;
  CardPool* pool = nullptr;
  BlockStore* store = nullptr;  // where it is filed when free
  Block* bin_next = nullptr;  // in a bin, or in a list on its way to the pool
  Block* previous = nullptr;  // neighbours in the segment
  Block* next = nullptr;
  std::vector<musaStream_t>* used_by = nullptr;  // streams other than its own, from record_block_stream
  uint64_t freed_at = 0;                         // tick of the pool: the garbage collector releases the oldest first
  uint32_t pending = 0;                          // markers that are not yet done
  int16_t device = 0;
  PoolKind kind = PoolKind::kSmall;
  uint8_t traits = 0;  // of BlockTrait
  bool expandable = false;  // a part of an expandable segment
  AtomicBlockState state;
};

inline size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

inline PoolKind kind_of(size_t rounded) { return rounded <= kSmallSize ? PoolKind::kSmall : PoolKind::kLarge; }

}  // namespace musa::allocator
