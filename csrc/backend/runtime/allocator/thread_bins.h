// Bins of small free blocks that belong to one thread, so that a small allocation takes no shared lock.
//
// A thread has one set of bins per (card, stream), with one bin per multiple of 512 bytes up to 128 KiB. What a thread
// frees goes to its own bins, whoever allocated it; a set that holds too much gives half back to the pool, so a
// consumer that only frees can't hoard what a producer needs. The lock of a set is its thread's own: others take it
// only to empty the bins before the card's memory grows.
#pragma once

#include <c10/core/Device.h>
#include <sched.h>

#include <array>
#include <atomic>

#include "backend/runtime/allocator/block.h"
#include "backend/runtime/allocator/live_stats.h"

namespace musa::allocator {

constexpr size_t kBinMaxBytes = size_t{128} << 10;
constexpr size_t kBins = kBinMaxBytes / kMinBlock;
constexpr uint16_t kBlocksPerBin = 512;
constexpr size_t kBytesPerSet = size_t{4} << 20;

class SpinLock {
 public:
  void lock() noexcept {
    while (__builtin_expect(taken_.exchange(true, std::memory_order_acquire), 0)) {
      sched_yield();
    }
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

class BinSet {
 public:
  constexpr BinSet(musaStream_t stream, int device, CardPool* pool, LiveStats* stats)
      : stream(stream), device(device), pool(pool), stats(stats) {}

  const musaStream_t stream;
  const int device;
  CardPool* const pool;
  LiveStats* const stats;

  static size_t bin_of(size_t bytes) { return (bytes - 1) / kMinBlock; }

  /// A block of exactly this bin's size, or nullptr.
  Block* pop(size_t bin) noexcept {
    lock_.lock();
    Block* block = heads_[bin];
    if (__builtin_expect(block != nullptr, 1)) {
      heads_[bin] = block->bin_next;
      --counts_[bin];
      bytes_ -= block->size;
      block->state = BlockState::kAllocated;
    }
    lock_.unlock();
    return block;
  }

  /// Takes a freed block and counts the free. Returns the blocks (a list) that no longer fit: they go to the pool.
  Block* push(Block* block) noexcept {
    const size_t bin = bin_of(block->size);
    lock_.lock();
    freed_.add({1, static_cast<int64_t>(block->size), static_cast<int64_t>(block->requested)});
    block->state = BlockState::kBinned;
    block->bin_next = heads_[bin];
    heads_[bin] = block;
    bytes_ += block->size;
    Block* spilled = nullptr;
    if (__builtin_expect(++counts_[bin] > kBlocksPerBin || bytes_ > kBytesPerSet, 0)) {
      spilled = spill(bin);
    }
    lock_.unlock();
    return spilled;
  }

  /// Empties all bins into a list in front of `list`.
  Block* detach_all(Block* list) noexcept;

  struct Totals {
    Usage freed;
    Usage binned;
  };
  Totals totals() noexcept;
  void reset_freed() noexcept;

 private:
  Block* spill(size_t bin) noexcept;
  Block* cut(size_t bin, uint16_t keep, Block* list) noexcept;

  SpinLock lock_;
  size_t bytes_ = 0;
  Usage freed_;
  std::array<Block*, kBins> heads_{};
  std::array<uint16_t, kBins> counts_{};
};

/// The bins the calling thread used last; never null, matches no stream when there are none. The static TLS model makes
/// a read one instruction, which matters at two reads per operator.
extern constinit thread_local BinSet* current_bins __attribute__((tls_model("initial-exec"), visibility("hidden")));

/// The calling thread's bins for a stream, which become `current_bins`. nullptr when the thread is ending.
BinSet* bins_for(CardPool* pool, LiveStats* stats, int device, musaStream_t stream);

/// Empties the bins of every thread for a card, of one stream or (nullptr) of all, into a list.
Block* detach_bins(int device, musaStream_t stream) noexcept;
/// Sums over every thread's bins for a card.
BinSet::Totals bin_totals(int device) noexcept;
void reset_bin_totals(int device) noexcept;

/// In a forked child: the calling thread's bins no longer match anything, so that it takes the checked path.
void abandon_bins_after_fork() noexcept;

}  // namespace musa::allocator
