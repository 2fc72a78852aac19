// The shared pool of one card: segments cut into blocks, best fit per stream, blocks that wait for other streams.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backend/runtime/allocator/block.h"
#include "backend/runtime/allocator/live_stats.h"
#include "backend/runtime/stream_marker.h"

namespace musa::allocator {

class CardPool {
 public:
  explicit CardPool(int device);

  LiveStats& live() { return live_; }
  int device() const { return device_; }

  /// A block of `size` bytes (a multiple of 512), not yet counted as allocated. Throws c10::OutOfMemoryError.
  Block* take(size_t size, size_t requested, musaStream_t stream);
  /// A list of blocks from the bins (linked by bin_next); their frees are already counted.
  void take_back(Block* list) noexcept;
  /// A freed block that goes to no bin; counts the free.
  void release(Block* block) noexcept;
  /// A freed block that other streams have used: it is free again when they are done. Counts the free.
  void defer(Block* block) noexcept;
  void record_stream(Block* block, musaStream_t stream);

  /// Waits for deferred blocks, empties all bins and returns every unused segment to the card.
  void empty_cache();

  c10::CachingDeviceAllocator::DeviceStats stats();
  void reset_accumulated_stats();
  void reset_peak_stats();
  void append_segments(std::vector<c10::CachingDeviceAllocator::SegmentInfo>& segments);
  int64_t reserved_bytes() const { return reserved_now_.load(std::memory_order_relaxed); }

  void set_fraction(double fraction);
  double fraction();

 private:
  struct BestFit {
    bool operator()(const Block* a, const Block* b) const;
  };
  using FreeBlocks = std::set<Block*, BestFit>;

  struct Deferred {
    StreamMarker marker;
    Block* block;
  };

  FreeBlocks& free_blocks(PoolKind kind) { return free_[static_cast<int>(kind)]; }

  // Finding and shaping blocks (card_pool.cpp); the lock is held in all of these.
  Block* best_fit(PoolKind kind, size_t size, musaStream_t stream);
  void insert(Block* block);
  void remove(Block* block);
  void split(Block* block, size_t size);
  void make_free(Block* block);
  void absorb(Block* list);
  Block* absorb_next(Block* block);
  Block* new_block();
  void delete_block(Block* block);
  void reap_deferred();
  void wait_deferred();

  // Segments (card_segments.cpp).
  Block* grow(PoolKind kind, size_t size, musaStream_t stream);
  Block* allocate_segment(PoolKind kind, size_t size, musaStream_t stream);
  void release_segment(Block* block);
  void release_cached();
  void collect_garbage(size_t size);
  [[noreturn]] void report_out_of_memory(size_t requested);

  static void change(c10::CachingAllocator::StatArray& stat, PoolKind kind, int64_t amount);

  const int device_;
  const size_t capacity_;
  LiveStats live_;
  std::atomic<int64_t> reserved_now_{0};

  std::mutex mutex_;
  FreeBlocks free_[2];
  std::map<uintptr_t, size_t> segments_;  // address -> bytes
  std::map<musaStream_t, std::deque<Deferred>> deferred_;
  Block* spare_blocks_ = nullptr;
  uint64_t tick_ = 0;
  double fraction_ = 1.0;
  bool fraction_set_ = false;
  musaError_t last_failure_ = musaSuccess;
  std::string last_failure_detail_;

  c10::CachingDeviceAllocator::DeviceStats counted_;  // segments, reserved, inactive splits, events
  Usage freed_[2];                                    // frees that went to no bin
  Usage live_at_reset_[3];                            // when accumulated statistics were reset
  Usage active_at_reset_[3];
};

/// The pool of a card, created with the first use. Throws for a card that isn't there.
CardPool& card_pool(int device);
/// nullptr when the card has not been used.
CardPool* existing_pool(int device) noexcept;

}  // namespace musa::allocator
