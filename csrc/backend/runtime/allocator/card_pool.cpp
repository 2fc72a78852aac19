#include "backend/runtime/allocator/card_pool.h"

#include <c10/core/AllocatorConfig.h>

#include <memory>

#include "backend/runtime/allocator/block_index.h"
#include "backend/runtime/allocator/config.h"
#include "backend/runtime/allocator/detours.h"
#include "backend/runtime/allocator/history.h"
#include "backend/runtime/allocator/thread_bins.h"
#include "backend/runtime/check.h"

namespace musa::allocator {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

namespace {

size_t capacity_of(int device) {
  const musaSimCard* card = nullptr;
  MUSA_CHECK(musaSimGetCard(device, &card));
  return card->memory;
}

// A piece of a segment, which can't go back to the card by itself.
bool is_stuck(const Block* block) { return !block->expandable && (block->previous || block->next); }

}  // namespace

CardPool::CardPool(int device) : device_(device), capacity_(capacity_of(device)) {
  default_.source = current_custom_allocator();
  if (const std::optional<double> fraction = configured_fraction()) {
    fraction_ = *fraction;
    fraction_set_ = true;
  }
}

void CardPool::change(c10::CachingAllocator::StatArray& stat, PoolKind kind, int64_t amount) {
  for (const int index : {LiveStats::kAll, LiveStats::index_of(kind)}) {
    if (amount >= 0) {
      stat[index].increase(static_cast<size_t>(amount));
    } else {
      stat[index].decrease(static_cast<size_t>(-amount));
    }
  }
}

Block* CardPool::take(size_t size, size_t requested, musaStream_t stream) {
  OutOfMemory facts;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Block* block = take_from(default_, size, requested, stream, facts)) {
      return block;
    }
  }
  report_out_of_memory(facts, stream);
}

Block* CardPool::take_detoured(size_t size, size_t requested, musaStream_t stream) {
  OutOfMemory facts;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Block* block = nullptr;
    if (BlockStore* store = routed_store(stream)) {
      block = take_from(*store, size, requested, stream, facts);
    } else if (has_detour(Detour::kUncached)) {
      block = take_uncached(size, requested, stream);
      if (!block) {
        describe_out_of_memory(requested, facts);
      }
    } else {
      return nullptr;
    }
    if (block) {
      return block;
    }
  }
  report_out_of_memory(facts, stream);
}

// The usual order of means: a free block, a new segment, what others can spare. nullptr when
// none helped; `facts` then says why.
Block* CardPool::take_from(BlockStore& store, size_t size, size_t requested, musaStream_t stream, OutOfMemory& facts) {
  const PoolKind kind = kind_of(size);
  ++tick_;
  reap_deferred();
  Block* block = best_fit(store, kind, size, stream);
  if (!block && kind == PoolKind::kSmall && !store.is_private()) {
    absorb(detach_bins(device_, stream));
    block = best_fit(store, kind, size, stream);
  }
  if (!block) {
    collect_garbage(size);
    block = grow(store, kind, size, stream);
  }
  if (!block && beyond_fraction_ && refuses_beyond_fraction()) {
    ++counted_.num_oom_rejections;
    describe_out_of_memory(requested, facts);
    return nullptr;
  }
  if (!block) {
    ++counted_.num_alloc_retries;
    absorb(detach_bins(device_, nullptr));
    wait_deferred();
    block = best_fit(store, kind, size, stream);
  }
  if (!block) {
    release_cached();
    block = grow(store, kind, size, stream);
  }
  if (!block) {
    block = borrow(kind, size, stream);
  }
  if (!block) {
    describe_out_of_memory(requested, facts);
    return nullptr;
  }
  split(block, size);
  if (block->size >= AcceleratorAllocatorConfig::max_split_size()) {
    counted_.oversize_allocations.increase(1);
  }
  block->state = BlockState::kAllocated;
  return block;
}

// Blocks from the size of max_split_size_mb on are handed out whole, and only to requests that nearly fill them.
Block* CardPool::best_fit(BlockStore& store, PoolKind kind, size_t size, musaStream_t stream) {
  FreeBlocks& blocks = store.free_blocks(kind);
  Block key{};
  key.stream = stream;
  key.size = size;
  const auto found = blocks.lower_bound(&key);
  if (found == blocks.end() || (*found)->stream != stream) {
    return nullptr;
  }
  Block* block = *found;
  const size_t unsplittable = AcceleratorAllocatorConfig::max_split_size();
  const bool whole_for_small_request = size < unsplittable && block->size >= unsplittable;
  const bool wasteful =
      size >= unsplittable && block->size - size >= AcceleratorAllocatorConfig::max_non_split_rounding_size();
  if (whole_for_small_request || wasteful) {
    return nullptr;
  }
  remove(block);
  return block;
}

void CardPool::insert(Block* block) {
  block->state = BlockState::kFree;
  block->freed_at = tick_;
  block->store->free_blocks(block->kind).insert(block);
  if (is_stuck(block)) {
    change(counted_.inactive_split, block->kind, 1);
    change(counted_.inactive_split_bytes, block->kind, static_cast<int64_t>(block->size));
  }
}

void CardPool::remove(Block* block) {
  block->store->free_blocks(block->kind).erase(block);
  if (is_stuck(block)) {
    change(counted_.inactive_split, block->kind, -1);
    change(counted_.inactive_split_bytes, block->kind, -static_cast<int64_t>(block->size));
  }
}

// Cuts what exceeds `size` off a block that is in no set.
void CardPool::split(Block* block, size_t size) {
  if (block->size == size || !block->store->splits || block->size >= AcceleratorAllocatorConfig::max_split_size()) {
    return;
  }
  insert(cut(block, size));
}

// Leaves `size` bytes in a block; the rest becomes a block of its own, in no set.
Block* CardPool::cut(Block* block, size_t size) {
  Block* rest = new_block();
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->stream = block->stream;
  rest->store = block->store;
  rest->kind = block->kind;
  rest->traits = block->traits & kOfPrivatePool;
  rest->expandable = block->expandable;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next) {
    rest->next->previous = rest;
  }
  block->next = rest;
  block->size = size;
  index_block(rest->address, rest);
  return rest;
}

// Merges a block that is in no set with its free neighbours and files the result.
void CardPool::make_free(Block* block) {
  if (block->traits & kUncached) {
    drop_segment(block);
    return;
  }
  if (block->size >= AcceleratorAllocatorConfig::max_split_size()) {
    counted_.oversize_allocations.decrease(1);
  }
  if (block->next && block->next->state == BlockState::kFree) {
    remove(block->next);
    absorb_next(block);
  }
  if (block->previous && block->previous->state == BlockState::kFree) {
    remove(block->previous);
    block = absorb_next(block->previous);
  }
  insert(block);
}

Block* CardPool::absorb_next(Block* block) {
  Block* gone = block->next;
  index_block(gone->address, nullptr);
  block->size += gone->size;
  block->next = gone->next;
  if (block->next) {
    block->next->previous = block;
  }
  delete_block(gone);
  return block;
}

void CardPool::absorb(Block* list) {
  while (list) {
    Block* block = list;
    list = block->bin_next;
    make_free(block);
  }
}

void CardPool::take_back(Block* list) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  absorb(list);
}

void CardPool::release(Block* block) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  freed_[static_cast<int>(block->kind)].add(
      {1, static_cast<int64_t>(block->size), static_cast<int64_t>(block->requested)});
  make_free(block);
}

void CardPool::record_stream(Block* block, musaStream_t stream) {
  if (stream == block->stream) {
    return;  // its own stream's order protects it
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!block->used_by) {
    block->used_by = new std::vector<musaStream_t>;
  }
  for (const musaStream_t known : *block->used_by) {
    if (known == stream) {
      return;
    }
  }
  block->used_by->push_back(stream);
  block->traits |= kUsedElsewhere;
}

void CardPool::defer(Block* block) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  freed_[static_cast<int>(block->kind)].add(
      {1, static_cast<int64_t>(block->size), static_cast<int64_t>(block->requested)});
  live_.deferred(block->kind, block->size);
  block->state = BlockState::kDeferred;
  if (captures_ > 0) {
    held_back_.push_back(block);
  } else {
    defer_now(block);
  }
}

void CardPool::defer_now(Block* block) {
  block->traits &= static_cast<uint8_t>(~kUsedElsewhere);
  const std::unique_ptr<std::vector<musaStream_t>> streams(std::exchange(block->used_by, nullptr));
  block->pending = static_cast<uint32_t>(streams->size());
  for (const musaStream_t stream : *streams) {
    deferred_[stream].push_back({StreamMarker(stream), block});
  }
}

// Markers of one stream are done in order, so each queue is looked at only as far as it is done.
void CardPool::reap_deferred() {
  for (auto queue = deferred_.begin(); queue != deferred_.end();) {
    std::deque<Deferred>& waiting = queue->second;
    while (!waiting.empty() && waiting.front().marker.done()) {
      Block* block = waiting.front().block;
      musaSimBlockSettled(reinterpret_cast<const void*>(block->address), block->size, waiting.front().marker.event());
      waiting.pop_front();
      if (--block->pending == 0) {
        live_.undeferred(block->kind, block->size);
        if (block->traits & kTraced) {
          trace_free_completed(block);
          forget_stack(block);
        }
        make_free(block);
      }
    }
    queue = waiting.empty() ? deferred_.erase(queue) : std::next(queue);
  }
}

void CardPool::wait_deferred() {
  if (deferred_.empty()) {
    return;
  }
  ++counted_.num_sync_all_streams;
  for (const auto& [stream, waiting] : deferred_) {
    waiting.back().marker.wait();
  }
  reap_deferred();
}

Block* CardPool::new_block() {
  if (!spare_blocks_) {
    // Never given back: the fault handler and a racing lookup may read a block at any time.
    constexpr size_t kBatch = 64;
    Block* batch = new Block[kBatch]();
    for (size_t i = 0; i < kBatch; ++i) {
      batch[i].bin_next = spare_blocks_;
      spare_blocks_ = &batch[i];
    }
  }
  Block* block = spare_blocks_;
  spare_blocks_ = block->bin_next;
  std::destroy_at(block);
  std::construct_at(block);
  block->pool = this;
  block->device = static_cast<int16_t>(device_);
  return block;
}

void CardPool::delete_block(Block* block) {
  block->bin_next = spare_blocks_;
  spare_blocks_ = block;
}

}  // namespace musa::allocator
