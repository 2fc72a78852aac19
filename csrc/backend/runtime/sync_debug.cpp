#include "backend/runtime/sync_debug.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace musa {

namespace {

std::atomic<SyncDebugMode> mode_in_force{SyncDebugMode::kDefault};

}  // namespace

SyncDebugMode sync_debug_mode() { return mode_in_force.load(std::memory_order_relaxed); }

void set_sync_debug_mode(SyncDebugMode mode) { mode_in_force.store(mode, std::memory_order_relaxed); }

void note_synchronization() {
  switch (sync_debug_mode()) {
    case SyncDebugMode::kDefault:
      return;
    case SyncDebugMode::kWarn:
      TORCH_WARN("called a synchronizing MUSA operation");
      return;
    case SyncDebugMode::kError:
      TORCH_CHECK(false, "called a synchronizing MUSA operation");
  }
}

}  // namespace musa
