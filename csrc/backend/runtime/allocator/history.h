// The history of the caching allocator: who allocated what, in which order. Off it costs nothing but the word of
// detours.h. A stack is taken before a pool is locked, because the interpreter's lock may be needed for it.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/runtime/allocator/block.h"

namespace musa {

using c10::CachingDeviceAllocator::AnnotationEntry;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;
using TakeStack = std::shared_ptr<c10::GatheredContext> (*)(std::string* compile_context);

struct HistoryOptions {
  bool enabled = false;
  TakeStack take_stack = nullptr;             // nullptr: no stacks
  RecordContext stacks = RecordContext::NEVER;  // up to which kind of event
  size_t most_entries = 1;                    // per card; the oldest go first. 0: only what is allocated is known
  bool clear = false;
  uint32_t skipped_actions = 0;  // bit TraceEntry::Action
};

void record_history(const HistoryOptions& options);
bool is_history_recorded();

/// What happened on each card that has been used, oldest first; times are nanoseconds since 1970. With an id only what
/// concerns that private pool.
std::vector<std::vector<TraceEntry>> history(c10::MempoolId_t id = {0, 0});
/// The stack that allocated the block (or the segment) at `address`; nullptr when unknown.
std::shared_ptr<c10::GatheredContext> stack_of(uintptr_t address);
std::shared_ptr<c10::GatheredContext> stack_of_segment(uintptr_t address);
/// Marks the place of a snapshot in every card's history.
void record_snapshot();

/// A text that goes with what is allocated from now on; empty for none.
void set_memory_metadata(const std::string& text);
std::string memory_metadata();

/// Notes something that isn't an allocation, for the reader of a snapshot; only while the history is recorded.
void record_annotation(std::vector<std::pair<std::string, std::string>> facts);
std::vector<AnnotationEntry> annotations();

/// Called with (card, bytes asked for, bytes of the card, bytes of it free) before an out-of-memory error is thrown,
/// with no lock held.
using OutOfMemoryObserver = std::function<void(int64_t, size_t, size_t, size_t)>;
void attach_out_of_memory_observer(OutOfMemoryObserver observer);

namespace allocator {

/// While it lives, events of the calling thread carry the stack taken here. Create before locking a pool.
class HistoryScope {
 public:
  enum class For { kAllocation, kFree };
  explicit HistoryScope(For purpose) noexcept;
  ~HistoryScope();
  HistoryScope(const HistoryScope&) = delete;
  HistoryScope& operator=(const HistoryScope&) = delete;

 private:
  bool active_;
};

/// These do nothing while the history is off. A pool's lock may be held.
void trace_allocated(Block* block);
void trace_free_requested(const Block* block);
void trace_free_completed(const Block* block);
void trace_segment(TraceEntry::Action action, const Block* segment);
void trace_out_of_memory(int device, size_t free, size_t requested, musaStream_t stream);
/// The block is no longer what its stack says.
void forget_stack(Block* block) noexcept;

void tell_out_of_memory_observers(int device, size_t requested, size_t total, size_t free);

}  // namespace allocator

}  // namespace musa
