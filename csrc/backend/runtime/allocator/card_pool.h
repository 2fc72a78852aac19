// The shared pool of one card: segments cut into blocks, best fit per stream, blocks that wait for other streams.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/runtime/allocator/block_index.h"
#include "backend/runtime/allocator/block_store.h"
#include "backend/runtime/allocator/expandable_segment.h"
#include "backend/runtime/allocator/live_stats.h"
#include "backend/runtime/allocator/out_of_memory.h"
#include "backend/runtime/allocator/pool_state.h"
#include "backend/runtime/allocator/private_pools.h"
#include "backend/runtime/stream_marker.h"

namespace musa::allocator {

class CardPool {
 public:
  explicit CardPool(int device);

  LiveStats& live() { return live_; }
  int device() const { return device_; }

  /// A block of `size` bytes (a multiple of 512), not yet counted as allocated. Throws c10::OutOfMemoryError.
  Block* take(size_t size, size_t requested, musaStream_t stream);
  /// The same where the detours lead: to the private pool that the calling thread's allocations on `stream` go to, or
  /// past the cache. nullptr when to neither.
  Block* take_detoured(size_t size, size_t requested, musaStream_t stream);
  /// A list of blocks from the bins (linked by bin_next); their frees are already counted.
  void take_back(Block* list) noexcept;
  /// A freed block that goes to no bin; counts the free.
  void release(Block* block) noexcept;
  /// A freed block that other streams have used: it is free again when they are done. Counts the free.
  void defer(Block* block) noexcept;
  void record_stream(Block* block, musaStream_t stream);

  /// Waits for deferred blocks, empties all bins and returns the unused segments to the card: all but those of held
  /// private pools, or with an id that pool's alone.
  void empty_cache(c10::MempoolId_t id = kDefaultPool);

  // Private pools (card_private_pools.cpp); see private_pools.h.
  void begin_route(c10::MempoolId_t id, StreamFilter filter, RouteUse use);
  void end_route(c10::MempoolId_t id);
  void retain(c10::MempoolId_t id);
  void release_hold(c10::MempoolId_t id);
  int uses(c10::MempoolId_t id);
  void set_traits(c10::MempoolId_t id, PoolTraits traits);
  bool holds_exactly(c10::MempoolId_t id, const std::unordered_set<const void*>& addresses);
  // pool_state.h
  std::vector<PoolBlock> state_of(c10::MempoolId_t id);
  std::vector<uintptr_t> restore(c10::MempoolId_t id, const std::vector<PoolBlock>& state);

  c10::CachingDeviceAllocator::DeviceStats stats();
  void reset_accumulated_stats();
  void reset_peak_stats();
  /// Segments of every pool, or with an id of that pool.
  void append_segments(
      std::vector<c10::CachingDeviceAllocator::SegmentInfo>& segments, c10::MempoolId_t id = kDefaultPool);
  int64_t reserved_bytes() const { return reserved_now_.load(std::memory_order_relaxed); }

  void set_fraction(double fraction);
  double fraction();

  /// The history is switched on: it wants to see the end of every block that is allocated now.
  void trace_living_blocks();

 private:
  struct Deferred {
    StreamMarker marker;
    Block* block;
  };

  struct Route {
    c10::MempoolId_t id;
    StreamFilter filter;
    RouteUse use;
    std::thread::id begun_by;
    BlockStore* store;
  };

  // Finding and shaping blocks (card_pool.cpp); the lock is held in all of these.
  Block* take_from(BlockStore& store, size_t size, size_t requested, musaStream_t stream, OutOfMemory& facts);
  Block* best_fit(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream);
  void insert(Block* block);
  void remove(Block* block);
  void split(Block* block, size_t size);
  Block* cut(Block* block, size_t size);
  void defer_now(Block* block);
  void make_free(Block* block);
  void absorb(Block* list);
  Block* absorb_next(Block* block);
  Block* new_block();
  void delete_block(Block* block);
  void reap_deferred();
  void wait_deferred();

  // Segments (card_segments.cpp).
  Block* grow(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream);
  Block* allocate_segment(BlockStore& store, PoolKind kind, size_t size, size_t requested, musaStream_t stream);
  void release_segment(Block* block);
  void release_cached();
  void release_cached(BlockStore& store);
  void collect_garbage(size_t size);
  void drop_segment(Block* block);
  void append_segment(
      std::vector<c10::CachingDeviceAllocator::SegmentInfo>& segments, const Block* first, const Block* end);

  // Expandable segments (card_expandable.cpp).
  Block* grow_expandable(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream);
  Block* find_room(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream);
  Block* reserve_segment(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream);
  ExpandableSegment& segment_of(const Block* block);
  void count_mapped(const Block* block, int64_t bytes);
  bool map_front(Block* block, size_t size);
  void unmap(Block* block);
  void release_addresses(Block* block);
  Block* take_uncached(size_t size, size_t requested, musaStream_t stream);
  void describe_out_of_memory(size_t requested, OutOfMemory& facts);
  [[noreturn]] void report_out_of_memory(const OutOfMemory& facts, musaStream_t stream);

  /// Every block of every segment, segment by segment; the lock is held.
  template <typename Visit>
  void for_each_block(Visit visit) {
    for (const auto& [address, bytes] : segments_) {
      for_each_block_from(address, visit);
    }
    for (const auto& [address, segment] : expandable_) {
      for_each_block_from(address, visit);
    }
  }
  template <typename Visit>
  void for_each_block_from(uintptr_t address, Visit visit) {
    for (Block* block = find_block(reinterpret_cast<const void*>(address)); block; block = block->next) {
      visit(block);
    }
  }

  // Private pools (card_private_pools.cpp).
  Block* claim(BlockStore& store, const PoolBlock& wanted);
  BlockStore* existing_store(c10::MempoolId_t id);
  BlockStore& held_store(c10::MempoolId_t id);
  BlockStore* routed_store(musaStream_t stream);
  Block* borrow(PoolKind kind, size_t size, musaStream_t stream);
  void drop_if_gone(c10::MempoolId_t id);
  void change_private(c10::MempoolId_t id, PoolKind kind, int64_t amount);

  static void change(c10::CachingAllocator::StatArray& stat, PoolKind kind, int64_t amount);

  const int device_;
  const size_t capacity_;
  LiveStats live_;
  std::atomic<int64_t> reserved_now_{0};

  std::mutex mutex_;
  BlockStore default_{kDefaultPool};
  std::map<c10::MempoolId_t, std::unique_ptr<BlockStore>> private_;
  std::vector<Route> routes_;
  int captures_ = 0;
  std::vector<Block*> held_back_;  // freed during a capture, used by other streams
  std::map<uintptr_t, size_t> segments_;  // address -> bytes
  std::map<uintptr_t, ExpandableSegment> expandable_;
  std::map<musaStream_t, std::deque<Deferred>> deferred_;
  Block* spare_blocks_ = nullptr;
  uint64_t tick_ = 0;
  double fraction_ = 1.0;
  bool fraction_set_ = false;
  bool beyond_fraction_ = false;  // why the last segment was refused
  musaError_t last_failure_ = musaSuccess;
  std::string last_failure_detail_;

  c10::CachingDeviceAllocator::DeviceStats counted_;  // segments, reserved, inactive splits, events
  Usage freed_[2];                                    // frees that went to no bin
  Usage live_at_reset_[3];                            // when accumulated statistics were reset
  Usage active_at_reset_[3];
};

/// The pool of a card, created with the first use. Throws for a card that isn't there.
CardPool& card_pool(int device);
/// trace_living_blocks of every pool.
void trace_living_blocks();
/// nullptr when the card has not been used.
CardPool* existing_pool(int device) noexcept;

}  // namespace musa::allocator
