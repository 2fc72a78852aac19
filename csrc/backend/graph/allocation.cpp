#include "backend/graph/allocation.h"

#include <algorithm>

#include "backend/graph/recorder.h"
#include "musart/musart_capture.h"

namespace musa::graph {

std::atomic<int> watching{0};

namespace {

thread_local PlannedMemory* current = nullptr;

}  // namespace

PlannedMemory::PlannedMemory(const std::vector<PlannedBlock>& blocks, musaStream_t stream)
    : blocks_(blocks), stream_(stream), outer_(current) {
  current = this;
}

PlannedMemory::~PlannedMemory() { current = outer_; }

void* PlannedMemory::take(size_t nbytes) {
  const int ordinal = static_cast<int>(given_.size());
  given_.push_back(nullptr);
  for (const PlannedBlock& block : blocks_) {
    const bool fits = block.nbytes == nbytes &&
        (block.ordinal == ordinal ||
         (block.ordinal == PlannedBlock::kUnknown &&
          std::find(given_.begin(), given_.end(), block.alias) == given_.end()));
    if (fits) {
      given_.back() = block.alias;
      return block.alias;
    }
  }
  return nullptr;
}

int PlannedMemory::ordinal_of(const void* alias) const {
  const auto found =
      std::find(given_.rbegin(), given_.rend(), alias);  // the last one: memory may have been given twice
  return found == given_.rend() ? PlannedBlock::kNone : static_cast<int>(given_.rend() - found) - 1;
}

PlannedMemory* planned_memory() { return current; }

void note_allocation(void* alias, size_t nbytes, musaStream_t stream) {
  if (alias != nullptr && musaSimCaptureCount() != 0) {
    if (auto* recorder = static_cast<Recorder*>(musaSimCaptureOwner(stream))) {
      recorder->note_allocation(alias, nbytes);
    }
  }
}

}  // namespace musa::graph
