// A card's private pools: who holds them, which allocations go to them.
#include <algorithm>

#include "backend/runtime/allocator/block_index.h"
#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/allocator/detours.h"

namespace musa::allocator {

constinit std::atomic<uint32_t> detours{0};

namespace {

std::string text_of(c10::MempoolId_t id) {
  return "(" + std::to_string(id.first) + ", " + std::to_string(id.second) + ")";
}

// Routes of all cards together decide whether allocations look for one.
void count_route(int change) {
  static std::mutex* mutex = new std::mutex;
  static int count = 0;
  const std::lock_guard<std::mutex> lock(*mutex);
  count += change;
  set_detour(Detour::kRouted, count > 0);
}

}  // namespace

BlockStore* CardPool::existing_store(c10::MempoolId_t id) {
  const auto found = private_.find(id);
  return found == private_.end() ? nullptr : found->second.get();
}

BlockStore& CardPool::held_store(c10::MempoolId_t id) {
  BlockStore* store = existing_store(id);
  TORCH_CHECK(
      store && store->uses > 0, "MUSA: nobody holds the memory pool ", text_of(id), " on card ", device_,
      "; a pool is made by torch.musa.MemPool() or begun with a graph capture, and gone after its last release.");
  return *store;
}

void CardPool::retain(c10::MempoolId_t id) {
  TORCH_CHECK_VALUE(id != kDefaultPool, "MUSA: (0, 0) is the default memory pool; it can't be used as a private one.");
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<BlockStore>& store = private_[id];
  if (!store) {
    store = std::make_unique<BlockStore>(id);
  }
  ++store->uses;
}

void CardPool::release_hold(c10::MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --held_store(id).uses;
  drop_if_gone(id);
}

int CardPool::uses(c10::MempoolId_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const BlockStore* store = existing_store(id);
  return store ? store->uses : 0;
}

void CardPool::set_traits(c10::MempoolId_t id, PoolTraits traits) {
  const std::lock_guard<std::mutex> lock(mutex_);
  BlockStore& store = held_store(id);
  store.source = std::move(traits.source);
  store.serves_when_full = traits.serves_when_full;
  store.splits = traits.splits;
}

bool CardPool::holds_exactly(c10::MempoolId_t id, const std::unordered_set<const void*>& addresses) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reap_deferred();
  held_store(id);
  size_t expected = 0;
  size_t others = 0;
  for_each_block([&](const Block* block) {
    if (block->store->id == id && block->state == BlockState::kAllocated) {
      ++(addresses.contains(reinterpret_cast<const void*>(block->address)) ? expected : others);
    }
  });
  return others == 0 && expected == addresses.size();
}

void CardPool::begin_route(c10::MempoolId_t id, StreamFilter filter, RouteUse use) {
  retain(id);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    routes_.push_back({id, std::move(filter), use, std::this_thread::get_id(), existing_store(id)});
    captures_ += use == RouteUse::kCapture;
  }
  count_route(1);
}

void CardPool::end_route(c10::MempoolId_t id) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto mine = std::find_if(routes_.rbegin(), routes_.rend(), [&](const Route& route) {
      return route.id == id && route.begun_by == std::this_thread::get_id();
    });
    const auto any = mine != routes_.rend()
        ? mine
        : std::find_if(routes_.rbegin(), routes_.rend(), [&](const Route& route) { return route.id == id; });
    TORCH_CHECK(
        any != routes_.rend(), "MUSA: no allocations of card ", device_, " go to the memory pool ", text_of(id),
        " at the moment; begin and end must come in pairs.");
    captures_ -= any->use == RouteUse::kCapture;
    routes_.erase(std::next(any).base());
    if (captures_ == 0) {
      for (Block* block : std::exchange(held_back_, {})) {
        defer_now(block);
      }
    }
  }
  count_route(-1);
}

BlockStore* CardPool::routed_store(musaStream_t stream) {
  const auto route =
      std::find_if(routes_.rbegin(), routes_.rend(), [&](const Route& each) { return each.filter(stream); });
  return route == routes_.rend() ? nullptr : route->store;
}

// The last resort before an error: a free block of a pool that allows it. It returns there when it is freed.
Block* CardPool::borrow(PoolKind kind, size_t size, musaStream_t stream) {
  for (const auto& [id, store] : private_) {
    if (store->serves_when_full) {
      if (Block* block = best_fit(*store, kind, size, stream)) {
        return block;
      }
    }
  }
  return nullptr;
}

void CardPool::drop_if_gone(c10::MempoolId_t id) {
  const auto found = private_.find(id);
  if (found != private_.end() && found->second->uses == 0 && found->second->segments == 0) {
    private_.erase(found);
  }
}

// A pool's figures outlive it, as in CUDA; but a program that captures forever must not collect them forever.
void CardPool::change_private(c10::MempoolId_t id, PoolKind kind, int64_t amount) {
  constexpr size_t kMostKept = 1024;
  auto& all = counted_.reserved_bytes_by_private_pools;
  if (all.size() >= kMostKept && all.find(id) == all.end()) {
    for (auto it = all.begin(); it != all.end();) {
      it = private_.contains(it->first) ? std::next(it) : all.erase(it);
    }
  }
  change(all[id], kind, amount);
}

}  // namespace musa::allocator
