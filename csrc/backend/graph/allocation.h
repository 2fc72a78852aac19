// Where memory comes from while graphs are captured and replayed. Results of a replayed kernel must land where the
// capture has promised them; memory handed out during a capture is filled with a poison pattern.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstddef>
#include <vector>

#include "musart/musart_sim.h"

namespace musa::graph {

/// Captures and replays under way. Zero almost always: the one look that every allocation of card memory takes.
extern std::atomic<int> watching __attribute__((visibility("hidden")));

class Watching {
 public:
  Watching() { watching.fetch_add(1, std::memory_order_relaxed); }
  ~Watching() { watching.fetch_sub(1, std::memory_order_relaxed); }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;
};

/// What an unwritten byte of a captured result reads: floating numbers are NaN, signed integers -1, bools true.
constexpr int kPoison = 0xFF;

/// Memory promised to a result: which of its kernel's allocations is to get it. Kernels allocate in the same order
/// each time; the first run, in which the first allocation of the right size gets it, shows which one becomes the
/// result.
struct PlannedBlock {
  void* alias;
  size_t nbytes;
  int ordinal = kUnknown;

  static constexpr int kUnknown = -1;
  static constexpr int kNone = -2;  // the result is no allocation of the kernel's
};

/// While it lives, allocations of the calling thread get the blocks that are planned for them; all others come from the
/// card, as workspace of `stream`.
class PlannedMemory {
 public:
  PlannedMemory(const std::vector<PlannedBlock>& blocks, musaStream_t stream);
  ~PlannedMemory();
  PlannedMemory(const PlannedMemory&) = delete;
  PlannedMemory& operator=(const PlannedMemory&) = delete;

  /// The block for this allocation; nullptr when it gets none.
  void* take(size_t nbytes);
  /// What an allocation that got no block was given instead.
  void note(void* alias) { given_.back() = alias; }
  musaStream_t stream() const { return stream_; }
  /// Which allocation was given `alias`; kNone when none was.
  int ordinal_of(const void* alias) const;

 private:
  const std::vector<PlannedBlock>& blocks_;
  musaStream_t stream_;
  c10::SmallVector<void*, 8> given_;
  PlannedMemory* outer_;
};

/// The calling thread's plan; nullptr when it isn't replaying.
PlannedMemory* planned_memory();

/// Tells the capture of `stream`, if there is one, about a block at alias address `alias`.
void note_allocation(void* alias, size_t nbytes, musaStream_t stream);

}  // namespace musa::graph
