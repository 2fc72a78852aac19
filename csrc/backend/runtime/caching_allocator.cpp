#include "backend/runtime/caching_allocator.h"

#include <c10/core/AllocatorConfig.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <mutex>

#include "backend/runtime/allocator/block_index.h"
#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/allocator/config.h"
#include "backend/runtime/allocator/detours.h"
#include "backend/runtime/allocator/history.h"
#include "backend/runtime/allocator/out_of_memory.h"
#include "backend/runtime/allocator/thread_bins.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "musart/musart_faults.h"
#include "musart/musart_races.h"

namespace musa {

using allocator::BinSet;
using allocator::Block;
using allocator::BlockState;
using allocator::CardPool;
using allocator::current_bins;
using allocator::kBinMaxBytes;

namespace {

constexpr int kMaxCards = 512;

// Leaked on purpose, like everything here: blocks are freed by static destructors and by threads that end after main.
constinit std::array<std::atomic<CardPool*>, kMaxCards> pools{};
constinit std::atomic<bool> forked{false};

void after_fork_in_child() {
  forked.store(true, std::memory_order_relaxed);
  allocator::abandon_bins_after_fork();
}

CardPool* create_pool(int device) {
  static std::mutex* mutex = new std::mutex;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (CardPool* pool = pools[device].load(std::memory_order_acquire)) {
    return pool;
  }
  if (allocator::block_index.granules == 0) {
    allocator::create_block_index();
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
  }
  watch_for_planned_failures();  // of the environment
  auto* pool = new CardPool(device);
  pools[device].store(pool, std::memory_order_release);
  return pool;
}

void report_to_profiler(const Block* block, int64_t bytes) {
  CardPool* pool = block->pool;
  c10::reportMemoryUsageToProfiler(
      reinterpret_cast<void*>(block->address), bytes,
      static_cast<size_t>(pool->live().current(allocator::LiveStats::kAll).bytes),
      static_cast<size_t>(pool->reserved_bytes()), c10::Device(kMusa, static_cast<c10::DeviceIndex>(block->device)));
}

inline void* hand_out(Block* block, size_t requested, allocator::LiveStats& stats) {
  block->requested = requested;
  stats.allocated(block->kind, block->size, requested);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report_to_profiler(block, static_cast<int64_t>(block->size));
  }
  return reinterpret_cast<void*>(block->address);
}

inline void retire(const Block* block, allocator::LiveStats& stats) noexcept {
  stats.freed(block->kind, block->size, block->requested);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report_to_profiler(block, -static_cast<int64_t>(block->size));
  }
}

// Above the bins, sizes can be rounded up to a fraction of a power of two, so that fewer distinct ones exist.
size_t rounded_size(size_t nbytes) {
  constexpr size_t kAbsurd = size_t{1} << 60;  // no card has it; kept unrounded so that nothing overflows
  if (nbytes > kAbsurd) {
    return kAbsurd;
  }
  if (nbytes > kBinMaxBytes) {
    const size_t divisions = c10::CachingAllocator::AcceleratorAllocatorConfig::roundup_power2_divisions(nbytes);
    if (divisions > 1) {
      nbytes = allocator::round_up(nbytes, std::max(std::bit_floor(nbytes) / divisions, allocator::kMinBlock));
    }
  }
  return allocator::round_up(nbytes, allocator::kMinBlock);
}

// As hand_out; the race checker learns of the block's new life.
void* hand_out_told(Block* block, size_t requested, allocator::LiveStats& stats) {
  void* address = hand_out(block, requested, stats);
  musaSimBlockTaken(address, block->size, block->stream);
  return address;
}

Block* pop_binned(CardPool& pool, size_t size, musaStream_t stream) {
  if (size <= kBinMaxBytes) {
    if (BinSet* bins = allocator::bins_for(&pool, &pool.live(), pool.device(), stream)) {
      return bins->pop(BinSet::bin_of(size));
    }
  }
  return nullptr;
}

void* allocate_detoured(CardPool& pool, size_t size, size_t nbytes, musaStream_t stream) {
  const allocator::HistoryScope scope(allocator::HistoryScope::For::kAllocation);
  Block* block = pool.take_detoured(size, nbytes, stream);
  if (!block) {
    block = pop_binned(pool, size, stream);
  }
  if (!block) {
    block = pool.take(size, nbytes, stream);
  }
  void* address = hand_out_told(block, nbytes, pool.live());
  allocator::trace_allocated(block);
  return address;
}

void fail_if_planned(size_t nbytes, c10::DeviceIndex device) {
  const musaError_t status = musaSimBeforeAllocation(device, nbytes);
  watch_for_planned_failures();
  if (status == musaSuccess) {
    return;
  }
  const std::string detail = musaSimGetLastErrorDetail();
  (void)musaGetLastError();
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "MUSA out of memory. Tried to allocate ", allocator::format_bytes(nbytes), ". ", detail,
      ". Everything else goes on: do as on a full card, free tensors or use a smaller batch.");
}

C10_NOINLINE void* allocate_slowly(size_t nbytes, c10::DeviceIndex device, musaStream_t stream) {
  if (nbytes == 0) {
    return nullptr;
  }
  CardPool& pool = allocator::card_pool(device);
  if (!stream) {
    MUSA_CHECK(musaSimDefaultStream(device, &stream));
  }
  const size_t size = rounded_size(nbytes);
  if (allocator::has_detour(allocator::Detour::kFaults)) {
    fail_if_planned(nbytes, device);
  }
  if (allocator::any_detour_but(allocator::Detour::kFaults)) {
    return allocate_detoured(pool, size, nbytes, stream);
  }
  if (Block* block = pop_binned(pool, size, stream)) {
    return hand_out_told(block, nbytes, pool.live());
  }
  return hand_out_told(pool.take(size, nbytes, stream), nbytes, pool.live());
}

C10_NOINLINE void free_slowly(void* device_pointer, Block* block) noexcept {
  if (!device_pointer || forked.load(std::memory_order_relaxed)) {
    return;  // a child's copy of its parent's metadata must not be touched: its locks may be held
  }
  if (!block || block->state != BlockState::kAllocated) {
    std::fprintf(
        stderr, "torch_musa_sim: %p was freed but is no allocated block of card memory (freed twice?); ignored.\n",
        device_pointer);
    return;
  }
  CardPool& pool = *block->pool;
  const allocator::HistoryScope scope(allocator::HistoryScope::For::kFree);
  if (block->traits & allocator::kTraced) {
    allocator::trace_free_requested(block);
    if (!block->used_by) {
      allocator::trace_free_completed(block);
      allocator::forget_stack(block);
    }
  }
  retire(block, pool.live());
  if ((block->traits & allocator::kOfPrivatePool) == 0) {  // what a graph works on is used again after it was freed
    musaSimBlockFreed(device_pointer, block->size);
  }
  if (block->used_by) {
    pool.defer(block);
    return;
  }
  if (block->size <= kBinMaxBytes && block->traits == 0) {
    if (BinSet* bins = allocator::bins_for(&pool, &pool.live(), block->device, block->stream)) {
      if (Block* spilled = bins->push(block)) {
        pool.take_back(spilled);
      }
      return;
    }
  }
  pool.release(block);
}

}  // namespace

namespace allocator {

CardPool& card_pool(int device) {
  ensure_initialized();
  if (CardPool* pool = existing_pool(device)) {
    return *pool;
  }
  const int cards = device_count_checked();
  TORCH_CHECK(
      device >= 0 && device < std::min(cards, kMaxCards), "MUSA: there is no card ", device, "; this process sees ",
      cards, cards == 1 ? " card." : " cards.");
  apply_config();
  return *create_pool(device);
}

void trace_living_blocks() {
  for (int device = 0; device < kMaxCards; ++device) {
    if (CardPool* pool = existing_pool(device)) {
      pool->trace_living_blocks();
    }
  }
}

CardPool* existing_pool(int device) noexcept {
  return device >= 0 && device < kMaxCards ? pools[device].load(std::memory_order_acquire) : nullptr;
}

}  // namespace allocator

void* allocate_block(size_t nbytes, c10::DeviceIndex device, musaStream_t stream) {
  BinSet* bins = current_bins;
  if (C10_LIKELY(
          nbytes - 1 < kBinMaxBytes && bins->stream == stream && bins->device == device && !allocator::any_detour())) {
    if (Block* block = bins->pop(BinSet::bin_of(nbytes)); C10_LIKELY(block != nullptr)) {
      return hand_out(block, nbytes, *bins->stats);
    }
  }
  return allocate_slowly(nbytes, device, stream);
}

void free_block(void* device_pointer) noexcept {
  BinSet* bins = current_bins;
  Block* block = allocator::find_block(device_pointer);
  if (C10_LIKELY(
          block && bins->stream == block->stream && bins->device == block->device && block->size <= kBinMaxBytes &&
          block->traits == 0 && block->state == BlockState::kAllocated)) {
    retire(block, *bins->stats);
    if (Block* spilled = bins->push(block); C10_UNLIKELY(spilled != nullptr)) {
      bins->pool->take_back(spilled);
    }
    return;
  }
  free_slowly(device_pointer, block);
}

void record_block_stream(void* device_pointer, musaStream_t stream) {
  Block* block = allocator::find_block(device_pointer);
  if (!block || block->state != BlockState::kAllocated) {
    return;  // memory of somebody else (another process, another library) has its own rules
  }
  ensure_initialized();
  if (!stream) {
    MUSA_CHECK(musaSimDefaultStream(current_device(), &stream));
  }
  block->pool->record_stream(block, stream);
}

size_t block_size(const void* device_pointer) noexcept {
  const Block* block = allocator::find_block(device_pointer);
  return block && block->state == BlockState::kAllocated ? block->size : 0;
}

void watch_for_planned_failures() {
  std::array<musaSimFaultPlan, 64> plans{};
  const int planned = musaSimPlannedFaults(plans.data(), static_cast<int>(plans.size()));
  // Beyond the room, one of the others may be an allocation's.
  const bool any = planned > static_cast<int>(plans.size()) ||
      std::any_of(plans.begin(), plans.begin() + planned,
                  [](const musaSimFaultPlan& plan) { return plan.fault == musaSimFaultAllocation; });
  allocator::set_detour(allocator::Detour::kFaults, any);
}

void set_memory_fraction(double fraction, c10::DeviceIndex device) {
  TORCH_CHECK_VALUE(
      fraction > 0.0 && fraction <= 1.0, "The memory fraction of a card must be in (0, 1], got ", fraction, ".");
  allocator::card_pool(resolve_device(device)).set_fraction(fraction);
}

double memory_fraction(c10::DeviceIndex device) { return allocator::card_pool(resolve_device(device)).fraction(); }

std::vector<c10::CachingDeviceAllocator::SegmentInfo> memory_segments(c10::MempoolId_t id) {
  std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments;
  for (int device = 0; device < kMaxCards; ++device) {
    if (CardPool* pool = allocator::existing_pool(device)) {
      pool->append_segments(segments, id);
    }
  }
  return segments;
}

}  // namespace musa
