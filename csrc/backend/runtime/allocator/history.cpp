#include "backend/runtime/allocator/history.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <unordered_map>

#include "backend/runtime/allocator/block_store.h"
#include "backend/runtime/allocator/card_pool.h"
#include "backend/runtime/allocator/detours.h"

namespace musa {

namespace {

using allocator::Block;
using allocator::Detour;
using allocator::has_detour;
using c10::CachingDeviceAllocator::trace_time_;
using Stack = std::shared_ptr<c10::GatheredContext>;

constexpr size_t kMostAnnotations = size_t{1} << 16;

// The last `most` entries.
class Ring {
 public:
  void push(TraceEntry entry, size_t most) {
    if (entries_.size() < most) {
      entries_.push_back(std::move(entry));
    } else if (most > 0) {
      next_ %= entries_.size();
      entries_[next_++] = std::move(entry);
    }
  }
  /// The oldest go when there are more than `most`.
  void limit(size_t most) {
    std::vector<TraceEntry> all = in_order();
    if (all.size() > most) {
      all.erase(all.begin(), all.end() - static_cast<ptrdiff_t>(most));
    }
    entries_ = std::move(all);
    next_ = 0;
  }
  std::vector<TraceEntry> in_order() const {
    std::vector<TraceEntry> all;
    all.reserve(entries_.size());
    for (size_t i = 0; i < entries_.size(); ++i) {
      all.push_back(entries_[(next_ + i) % entries_.size()]);
    }
    return all;
  }
  void clear() {
    entries_.clear();
    next_ = 0;
  }

 private:
  std::vector<TraceEntry> entries_;
  size_t next_ = 0;  // the oldest, once the ring is full
};

struct Recorder {
  std::mutex mutex;  // taken after a pool's lock, never before
  HistoryOptions options;
  std::unordered_map<int, Ring> rings;
  std::unordered_map<uintptr_t, Stack> blocks;    // of what is allocated
  std::unordered_map<uintptr_t, Stack> segments;
  std::vector<AnnotationEntry> annotations;
  std::string metadata;
};

Recorder& recorder() {
  static auto* instance = new Recorder;  // leaked: blocks are freed by static destructors
  return *instance;
}

struct CurrentStack {
  Stack stack;
  std::string compile_context;
};
thread_local CurrentStack current;

bool recording() { return has_detour(Detour::kHistory); }

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Under the recorder's lock. Each kind of event keeps stacks from its own level on.
void push(
    Recorder& r, TraceEntry::Action action, int device, size_t address, size_t size, musaStream_t stream,
    c10::MempoolId_t pool, RecordContext level) {
  if (r.options.most_entries == 0 || (r.options.skipped_actions >> action & 1) != 0) {
    return;
  }
  const bool with_stack = r.options.stacks >= level;
  r.rings[device].push(
      TraceEntry(
          action, static_cast<c10::DeviceIndex>(device), address, size, stream, pool,
          static_cast<c10::approx_time_t>(now()), with_stack ? current.stack : nullptr, current.compile_context,
          r.metadata),
      r.options.most_entries);
}

std::mutex& observers_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::vector<OutOfMemoryObserver>& observers() {
  static auto* list = new std::vector<OutOfMemoryObserver>;
  return *list;
}

}  // namespace

void record_history(const HistoryOptions& options) {
  Recorder& r = recorder();
  {
    const std::lock_guard<std::mutex> lock(r.mutex);
    r.options = options;
    if (options.clear) {
      r.rings.clear();
      r.annotations.clear();
    } else if (options.enabled) {
      for (auto& [device, ring] : r.rings) {
        ring.limit(options.most_entries);
      }
    }
  }
  allocator::set_detour(Detour::kHistory, options.enabled);
  if (options.enabled) {
    allocator::trace_living_blocks();
  }
}

bool is_history_recorded() { return recording(); }

std::vector<std::vector<TraceEntry>> history(c10::MempoolId_t id) {
  Recorder& r = recorder();
  const std::lock_guard<std::mutex> lock(r.mutex);
  std::vector<std::vector<TraceEntry>> all;
  for (const auto& [device, ring] : r.rings) {
    if (all.size() <= static_cast<size_t>(device)) {
      all.resize(static_cast<size_t>(device) + 1);
    }
    all[static_cast<size_t>(device)] = ring.in_order();
    if (id != allocator::kDefaultPool) {
      std::erase_if(all[static_cast<size_t>(device)], [&](const TraceEntry& entry) { return entry.mempool_ != id; });
    }
  }
  return all;
}

Stack stack_of(uintptr_t address) {
  Recorder& r = recorder();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.blocks.find(address);
  return found == r.blocks.end() ? nullptr : found->second;
}

Stack stack_of_segment(uintptr_t address) {
  Recorder& r = recorder();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.segments.find(address);
  return found == r.segments.end() ? nullptr : found->second;
}

void record_snapshot() {
  if (!recording()) {
    return;
  }
  Recorder& r = recorder();
  const std::lock_guard<std::mutex> lock(r.mutex);
  for (const auto& [device, ring] : r.rings) {
    push(r, TraceEntry::SNAPSHOT, device, 0, 0, nullptr, allocator::kDefaultPool, RecordContext::ALL);
  }
}

void set_memory_metadata(const std::string& text) {
  const std::lock_guard<std::mutex> lock(recorder().mutex);
  recorder().metadata = text;
}

std::string memory_metadata() {
  const std::lock_guard<std::mutex> lock(recorder().mutex);
  return recorder().metadata;
}

void record_annotation(std::vector<std::pair<std::string, std::string>> facts) {
  if (!recording()) {
    return;
  }
  int device = 0;
  musaGetDevice(&device);
  AnnotationEntry entry(static_cast<c10::DeviceIndex>(device), static_cast<c10::approx_time_t>(now()));
  for (auto& [name, value] : facts) {
    entry.recordUserMetadata(name, std::move(value));
  }
  Recorder& r = recorder();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (r.annotations.size() == kMostAnnotations) {
    r.annotations.erase(r.annotations.begin(), r.annotations.begin() + kMostAnnotations / 2);
  }
  r.annotations.push_back(std::move(entry));
}

std::vector<AnnotationEntry> annotations() {
  const std::lock_guard<std::mutex> lock(recorder().mutex);
  return recorder().annotations;
}

void attach_out_of_memory_observer(OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(observers_mutex());
  observers().push_back(std::move(observer));
}

namespace allocator {

HistoryScope::HistoryScope(For purpose) noexcept : active_(recording()) {
  if (!active_) {
    return;
  }
  TakeStack take = nullptr;
  {
    const std::lock_guard<std::mutex> lock(recorder().mutex);
    const HistoryOptions& options = recorder().options;
    if (options.stacks >= (purpose == For::kFree ? RecordContext::ALL : RecordContext::STATE)) {
      take = options.take_stack;
    }
  }
  if (take) {
    current.stack = take(&current.compile_context);
  }
}

HistoryScope::~HistoryScope() {
  if (active_) {
    current.stack.reset();
    current.compile_context.clear();
  }
}

void trace_allocated(Block* block) {
  if (!recording()) {
    return;
  }
  Recorder& r = recorder();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (current.stack) {
    r.blocks[block->address] = current.stack;
  }
  block->traits |= kTraced;
  push(
      r, TraceEntry::ALLOC, block->device, block->address, block->requested, block->stream, block->store->id,
      RecordContext::ALLOC);
}

void trace_free_requested(const Block* block) {
  if (recording()) {
    Recorder& r = recorder();
    const std::lock_guard<std::mutex> lock(r.mutex);
    push(
        r, TraceEntry::FREE_REQUESTED, block->device, block->address, block->requested, block->stream, block->store->id,
        RecordContext::ALL);
  }
}

void trace_free_completed(const Block* block) {
  if (recording()) {
    Recorder& r = recorder();
    const std::lock_guard<std::mutex> lock(r.mutex);
    push(
        r, TraceEntry::FREE_COMPLETED, block->device, block->address, block->requested, block->stream, block->store->id,
        RecordContext::ALL);
  }
}

void trace_segment(TraceEntry::Action action, const Block* segment) {
  const bool begins = action == TraceEntry::SEGMENT_ALLOC || action == TraceEntry::SEGMENT_MAP;
  if (begins && !recording()) {
    return;
  }
  Recorder& r = recorder();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (!begins) {  // also of a segment that was seen before the history was switched off
    r.segments.erase(segment->address);
  } else if (current.stack) {
    r.segments[segment->address] = current.stack;
  }
  if (recording()) {
    push(
        r, action, segment->device, segment->address, segment->size, segment->stream, segment->store->id,
        begins ? RecordContext::ALLOC : RecordContext::ALL);
  }
}

void trace_out_of_memory(int device, size_t free, size_t requested, musaStream_t stream) {
  if (recording()) {
    Recorder& r = recorder();
    const std::lock_guard<std::mutex> lock(r.mutex);
    push(r, TraceEntry::OOM, device, free, requested, stream, kDefaultPool, RecordContext::ALLOC);
  }
}

void forget_stack(Block* block) noexcept {
  block->traits &= static_cast<uint8_t>(~kTraced);
  const std::lock_guard<std::mutex> lock(recorder().mutex);
  recorder().blocks.erase(block->address);
}

void tell_out_of_memory_observers(int device, size_t requested, size_t total, size_t free) {
  std::vector<OutOfMemoryObserver> all;
  {
    const std::lock_guard<std::mutex> lock(observers_mutex());
    all = observers();
  }
  for (const OutOfMemoryObserver& observer : all) {
    observer(device, requested, total, free);
  }
}

}  // namespace allocator

}  // namespace musa
