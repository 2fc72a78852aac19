#include "backend/runtime/allocator/thread_bins.h"

#include <memory>
#include <mutex>
#include <utility>

#include "backend/runtime/allocator/card_pool.h"
#include "musart/watch.h"

namespace musa::allocator {

namespace {

constinit BinSet no_bins(nullptr, -1, nullptr, nullptr);

// All sets of one thread. Outlives the thread: the next new thread takes it over.
struct ThreadBins {
  std::vector<std::unique_ptr<BinSet>> sets;
  bool owned = true;
};

struct Registry {
  std::mutex mutex;  // taken after a pool's lock, never before
  std::vector<std::unique_ptr<ThreadBins>> threads;
};

Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

thread_local ThreadBins* my_bins = nullptr;
thread_local bool thread_is_ending = false;

// Gives the blocks of an ending thread to the pools. What its later destructors free goes straight there.
struct AtThreadExit {
  bool armed = false;
  ~AtThreadExit() {
    ThreadBins* bins = std::exchange(my_bins, nullptr);
    thread_is_ending = true;
    current_bins = &no_bins;
    if (!bins || !armed) {
      return;
    }
    for (const auto& set : bins->sets) {
      if (Block* list = set->detach_all(nullptr)) {
        set->pool->take_back(list);
      }
    }
    const std::lock_guard<std::mutex> lock(registry().mutex);
    bins->owned = false;
  }
};

thread_local AtThreadExit at_thread_exit;

ThreadBins* adopt_bins() {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  for (const auto& bins : registry().threads) {
    if (!bins->owned) {
      bins->owned = true;
      return bins.get();
    }
  }
  registry().threads.push_back(std::make_unique<ThreadBins>());
  return registry().threads.back().get();
}

template <typename Visit>
void for_each_set(int device, Visit visit) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  for (const auto& bins : registry().threads) {
    for (const auto& set : bins->sets) {
      if (set->device == device) {
        visit(*set);
      }
    }
  }
}

}  // namespace

constinit thread_local BinSet* current_bins = &no_bins;

Block* BinSet::cut(size_t bin, uint16_t keep, Block* list) noexcept {
  for (; counts_[bin] > keep; --counts_[bin]) {
    Block* block = heads_[bin];
    heads_[bin] = block->bin_next;
    bytes_ -= block->size;
    block->bin_next = list;
    list = block;
  }
  return list;
}

Block* BinSet::spill(size_t bin) noexcept {
  Block* list = nullptr;
  if (counts_[bin] > kBlocksPerBin) {
    list = cut(bin, kBlocksPerBin / 2, list);
  }
  if (bytes_ > kBytesPerSet) {
    // Half of every bin: spilling only this one would send each block of a rare size straight to the pool.
    for (size_t each = 0; each < kBins; ++each) {
      list = cut(each, counts_[each] / 2, list);
    }
  }
  return list;
}

Block* BinSet::detach_all(Block* list) noexcept {
  lock_.lock();
  for (size_t bin = 0; bytes_ > 0; ++bin) {
    list = cut(bin, 0, list);
  }
  lock_.unlock();
  return list;
}

BinSet::Totals BinSet::totals() noexcept {
  lock_.lock();
  Totals totals{freed_, {0, static_cast<int64_t>(bytes_), 0}};
  for (const uint16_t count : counts_) {
    totals.binned.count += count;
  }
  lock_.unlock();
  return totals;
}

void BinSet::reset_freed() noexcept {
  lock_.lock();
  freed_ = {};
  lock_.unlock();
}

namespace {

// The race checker hears of every block: under it no bins are current, so that the fast path never matches.
BinSet* become_current(BinSet* bins) {
  if ((musart::watched() & musart::kWatchRaces) == 0) {
    current_bins = bins;
  }
  return bins;
}

}  // namespace

BinSet* bins_for(CardPool* pool, LiveStats* stats, int device, musaStream_t stream) {
  if (thread_is_ending) {
    return nullptr;
  }
  if (!my_bins) {
    my_bins = adopt_bins();
    at_thread_exit.armed = true;
  }
  for (const auto& set : my_bins->sets) {
    if (set->stream == stream && set->device == device) {
      return become_current(set.get());
    }
  }
  auto fresh = std::make_unique<BinSet>(stream, device, pool, stats);
  const std::lock_guard<std::mutex> lock(registry().mutex);
  my_bins->sets.push_back(std::move(fresh));
  return become_current(my_bins->sets.back().get());
}

Block* detach_bins(int device, musaStream_t stream) noexcept {
  Block* list = nullptr;
  for_each_set(device, [&](BinSet& set) {
    if (!stream || set.stream == stream) {
      list = set.detach_all(list);
    }
  });
  return list;
}

BinSet::Totals bin_totals(int device) noexcept {
  BinSet::Totals sum;
  for_each_set(device, [&](BinSet& set) {
    const BinSet::Totals part = set.totals();
    sum.freed.add(part.freed);
    sum.binned.add(part.binned);
  });
  return sum;
}

void reset_bin_totals(int device) noexcept {
  for_each_set(device, [](BinSet& set) { set.reset_freed(); });
}

void abandon_bins_after_fork() noexcept {
  my_bins = nullptr;
  thread_is_ending = true;
  current_bins = &no_bins;
}

}  // namespace musa::allocator
