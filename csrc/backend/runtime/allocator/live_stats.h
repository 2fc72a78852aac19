// What is allocated on a card now and at most, exact at every moment and without a lock.
//
// Number and bytes of the blocks of a pool share one 64-bit word (24 bits of number, 40 bits of 512-byte units), so an
// allocation costs two atomic additions and a free two more. Totals over both pools are sums of two words. What was
// ever freed is counted elsewhere, by the thread or under the pool's lock, because nobody needs its peak.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "backend/runtime/allocator/block.h"

namespace musa::allocator {

struct Usage {
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t requested = 0;

  void add(const Usage& other) {
    count += other.count;
    bytes += other.bytes;
    requested += other.requested;
  }
};

class LiveStats {
 public:
  // Indices of a StatArray: all, small pool, large pool.
  static constexpr int kAll = 0;
  static constexpr int index_of(PoolKind kind) { return 1 + static_cast<int>(kind); }

  void allocated(PoolKind kind, size_t bytes, size_t requested) noexcept {
    const int mine = static_cast<int>(kind);
    const uint64_t delta = pack(1, bytes);
    const uint64_t packed = live_[mine].packed.fetch_add(delta) + delta;
    const int64_t asked =
        live_[mine].requested.fetch_add(static_cast<int64_t>(requested)) + static_cast<int64_t>(requested);
    raise(peak_[1 + mine], packed, asked);
    raise(peak_[kAll], packed + live_[1 - mine].packed.load(), asked + live_[1 - mine].requested.load());
    if (__builtin_expect((deferred_[0].load() | deferred_[1].load()) != 0, 0)) {
      raise_active();
    }
  }

  void freed(PoolKind kind, size_t bytes, size_t requested) noexcept {
    const int mine = static_cast<int>(kind);
    live_[mine].packed.fetch_sub(pack(1, bytes));
    live_[mine].requested.fetch_sub(static_cast<int64_t>(requested));
  }

  // A freed block that waits for another stream stays active.
  void deferred(PoolKind kind, size_t bytes) noexcept { deferred_[static_cast<int>(kind)].fetch_add(pack(1, bytes)); }
  void undeferred(PoolKind kind, size_t bytes) noexcept { deferred_[static_cast<int>(kind)].fetch_sub(pack(1, bytes)); }

  Usage current(int index) const noexcept {
    uint64_t packed = 0;
    int64_t requested = 0;
    for (int kind = 0; kind < 2; ++kind) {
      if (index == kAll || index == 1 + kind) {
        packed += live_[kind].packed.load();
        requested += live_[kind].requested.load();
      }
    }
    return {count_of(packed), bytes_of(packed), requested};
  }
  Usage current_active(int index) const noexcept {
    Usage usage = current(index);
    for (int kind = 0; kind < 2; ++kind) {
      if (index == kAll || index == 1 + kind) {
        usage.count += count_of(deferred_[kind].load());
        usage.bytes += bytes_of(deferred_[kind].load());
      }
    }
    return usage;
  }
  Usage peak(int index) const noexcept {
    return {
        static_cast<int64_t>(peak_[index].count.load()),
        static_cast<int64_t>(peak_[index].units.load()) * static_cast<int64_t>(kMinBlock),
        peak_[index].requested.load()};
  }
  // What is allocated is also active; the words of their own only move while some block is deferred.
  Usage peak_active(int index) const noexcept {
    Usage usage = peak(index);
    const int64_t bytes = static_cast<int64_t>(peak_active_[index].units.load()) * static_cast<int64_t>(kMinBlock);
    usage.count = std::max(usage.count, static_cast<int64_t>(peak_active_[index].count.load()));
    usage.bytes = std::max(usage.bytes, bytes);
    return usage;
  }
  void reset_peaks() noexcept {
    for (int index = 0; index < 3; ++index) {
      store_peak(peak_[index], current(index));
      store_peak(peak_active_[index], current_active(index));
    }
  }

 private:
  static constexpr int kCountShift = 40;
  static constexpr uint64_t kUnitMask = (uint64_t{1} << kCountShift) - 1;

  struct alignas(64) Live {
    std::atomic<uint64_t> packed{0};
    std::atomic<int64_t> requested{0};
  };
  struct Peak {
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> units{0};
    std::atomic<int64_t> requested{0};
  };

  static uint64_t pack(uint64_t count, size_t bytes) { return (count << kCountShift) + bytes / kMinBlock; }
  static int64_t count_of(uint64_t packed) { return static_cast<int64_t>(packed >> kCountShift); }
  static int64_t bytes_of(uint64_t packed) { return static_cast<int64_t>((packed & kUnitMask) * kMinBlock); }

  template <typename T>
  static void raise_one(std::atomic<T>& peak, T value) noexcept {
    T seen = peak.load(std::memory_order_relaxed);
    while (__builtin_expect(value > seen, 0) && !peak.compare_exchange_weak(seen, value)) {
    }
  }
  static void raise(Peak& peak, uint64_t packed, int64_t requested) noexcept {
    raise_one(peak.count, packed >> kCountShift);
    raise_one(peak.units, packed & kUnitMask);
    raise_one(peak.requested, requested);
  }
  void raise_active() noexcept {
    for (int index = 0; index < 3; ++index) {
      const Usage usage = current_active(index);
      raise_one(peak_active_[index].count, static_cast<uint64_t>(usage.count));
      raise_one(peak_active_[index].units, static_cast<uint64_t>(usage.bytes) / kMinBlock);
    }
  }
  static void store_peak(Peak& peak, const Usage& usage) noexcept {
    peak.count.store(static_cast<uint64_t>(usage.count));
    peak.units.store(static_cast<uint64_t>(usage.bytes) / kMinBlock);
    peak.requested.store(usage.requested);
  }

  Live live_[2];
  std::atomic<uint64_t> deferred_[2] = {0, 0};
  Peak peak_[3];
  Peak peak_active_[3];
};

}  // namespace musa::allocator
