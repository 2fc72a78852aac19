// What a card's pool reports: c10's statistics and the list of its segments.
#include <c10/core/AllocatorConfig.h>

#include <algorithm>
#include <limits>

#include "backend/runtime/allocator/block_index.h"
#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/allocator/history.h"
#include "backend/runtime/allocator/thread_bins.h"

namespace musa::allocator {

using c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::SegmentInfo;

namespace {

// What was allocated since the last reset = what was freed since then + by how much the current value grew.
c10::CachingAllocator::Stat make_stat(int64_t current, int64_t peak, int64_t freed, int64_t current_at_reset) {
  c10::CachingAllocator::Stat stat;
  stat.current = current;
  stat.peak = std::max(peak, current);
  stat.freed = freed;
  stat.allocated = freed + current - current_at_reset;
  return stat;
}

}  // namespace

DeviceStats CardPool::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  reap_deferred();
  const BinSet::Totals bins = bin_totals(device_);
  DeviceStats stats = counted_;
  for (int index = 0; index < 3; ++index) {
    Usage freed;
    if (index != LiveStats::index_of(PoolKind::kLarge)) {
      freed.add(freed_[static_cast<int>(PoolKind::kSmall)]);
      freed.add(bins.freed);
    }
    if (index != LiveStats::index_of(PoolKind::kSmall)) {
      freed.add(freed_[static_cast<int>(PoolKind::kLarge)]);
    }
    const Usage now = live_.current(index);
    const Usage peak = live_.peak(index);
    const Usage& before = live_at_reset_[index];
    stats.allocation[index] = make_stat(now.count, peak.count, freed.count, before.count);
    stats.allocated_bytes[index] = make_stat(now.bytes, peak.bytes, freed.bytes, before.bytes);
    stats.requested_bytes[index] = make_stat(now.requested, peak.requested, freed.requested, before.requested);

    // A block stops being active when it is freed, or later when it was deferred.
    const Usage active = live_.current_active(index);
    const Usage active_peak = live_.peak_active(index);
    const Usage& active_before = active_at_reset_[index];
    const int64_t waiting = (active.count - now.count) - (active_before.count - before.count);
    const int64_t waiting_bytes = (active.bytes - now.bytes) - (active_before.bytes - before.bytes);
    stats.active[index] = make_stat(active.count, active_peak.count, freed.count - waiting, active_before.count);
    stats.active_bytes[index] =
        make_stat(active.bytes, active_peak.bytes, freed.bytes - waiting_bytes, active_before.bytes);
  }
  // Blocks in the bins are free pieces of a segment too.
  for (const int index : {LiveStats::kAll, LiveStats::index_of(PoolKind::kSmall)}) {
    stats.inactive_split[index].current += bins.binned.count;
    stats.inactive_split_bytes[index].current += bins.binned.bytes;
    for (auto* stat : {&stats.inactive_split[index], &stats.inactive_split_bytes[index]}) {
      stat->peak = std::max(stat->peak, stat->current);
    }
  }
  stats.max_split_size = static_cast<int64_t>(std::min<size_t>(
      AcceleratorAllocatorConfig::max_split_size(), static_cast<size_t>(std::numeric_limits<int64_t>::max())));
  return stats;
}

void CardPool::reset_accumulated_stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (int index = 0; index < 3; ++index) {
    live_at_reset_[index] = live_.current(index);
    active_at_reset_[index] = live_.current_active(index);
    for (auto* stat :
         {&counted_.segment[index], &counted_.reserved_bytes[index], &counted_.inactive_split[index],
          &counted_.inactive_split_bytes[index]}) {
      stat->reset_accumulated();
    }
  }
  for (auto& [id, reserved] : counted_.reserved_bytes_by_private_pools) {
    for (c10::CachingAllocator::Stat& stat : reserved) {
      stat.reset_accumulated();
    }
  }
  freed_[0] = freed_[1] = {};
  reset_bin_totals(device_);
  counted_.oversize_allocations.reset_accumulated();
  counted_.oversize_segments.reset_accumulated();
  counted_.num_alloc_retries = 0;
  counted_.num_ooms = 0;
  counted_.num_oom_rejections = 0;
  counted_.num_sync_all_streams = 0;
  counted_.num_device_alloc = 0;
  counted_.num_device_free = 0;
}

void CardPool::reset_peak_stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  live_.reset_peaks();
  for (int index = 0; index < 3; ++index) {
    for (auto* stat :
         {&counted_.segment[index], &counted_.reserved_bytes[index], &counted_.inactive_split[index],
          &counted_.inactive_split_bytes[index]}) {
      stat->reset_peak();
    }
  }
  for (auto& [id, reserved] : counted_.reserved_bytes_by_private_pools) {
    for (c10::CachingAllocator::Stat& stat : reserved) {
      stat.reset_peak();
    }
  }
  counted_.oversize_allocations.reset_peak();
  counted_.oversize_segments.reset_peak();
}

void CardPool::append_segments(std::vector<SegmentInfo>& segments, c10::MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto wanted = [&](const Block* block) { return id == kDefaultPool || block->store->id == id; };
  for (const auto& [address, bytes] : segments_) {
    const Block* head = find_block(reinterpret_cast<const void*>(address));
    if (wanted(head)) {
      append_segment(segments, head, nullptr);
    }
  }
  for (const auto& [address, segment] : expandable_) {  // each run with memory is shown as a segment
    const Block* first = nullptr;
    for (const Block* block = find_block(reinterpret_cast<const void*>(address)); block; block = block->next) {
      const bool mapped = block->state != BlockState::kUnmapped;
      first = mapped && !first ? block : first;
      if (first && (!mapped || !block->next)) {
        if (wanted(first)) {
          append_segment(segments, first, mapped ? nullptr : block);
        }
        first = nullptr;
      }
    }
  }
}

// The blocks from `first` up to `end`.
void CardPool::append_segment(std::vector<SegmentInfo>& segments, const Block* first, const Block* end) {
  SegmentInfo segment;
  segment.device = static_cast<c10::DeviceIndex>(device_);
  segment.address = first->address;
  segment.stream = first->stream;
  segment.context_when_allocated = stack_of_segment(first->address);
  segment.owner_private_pool_id = first->store->id;
  segment.is_large = first->kind == PoolKind::kLarge;
  segment.is_expandable = first->expandable;
  for (const Block* block = first; block != end; block = block->next) {
    const BlockState state = block->state;
    BlockInfo info;
    info.size = block->size;
    info.allocated = state == BlockState::kAllocated;
    info.active = info.allocated || state == BlockState::kDeferred;
    info.requested_size = info.active ? block->requested : 0;
    if (info.active) {
      info.context_when_allocated = stack_of(block->address);
    }
    segment.total_size += info.size;
    segment.allocated_size += info.allocated ? info.size : 0;
    segment.active_size += info.active ? info.size : 0;
    segment.requested_size += info.requested_size;
    segment.blocks.push_back(std::move(info));
  }
  segments.push_back(std::move(segment));
}

}  // namespace musa::allocator
