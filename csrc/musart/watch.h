// Who watches the device at work: one word of bits says whether anybody does, so that an operator that nobody watches
// pays one relaxed load and a branch that isn't taken.
//
// To add a watcher: take a bit in `Watch`, derive from Watcher, and switch it on with watch(bit, &instance), off with
// unwatch(bit). The instance must live until the process ends: a thread may be inside a call when it is switched off.
// What it is told: kernels and copies of operators from backend/bridge/launch.h (with the operator's name and the
// memory it touched), everything else (musaMemcpy, musaMemset, events, synchronisation) from this library.
#pragma once

#include <stdint.h>

#include <atomic>
#include <span>

#include "musart/musart_sim.h"

namespace musart {

enum Watch : uint32_t {
  kWatchFaults = 1u << 0,  // a fault is planned or has happened; needs no watcher, the runtime itself looks
  kWatchProfiler = 1u << 1,
  kWatchRaces = 1u << 2,
  kWatchGraphs = 1u << 3,
  kWatchTrace = 1u << 4,
};

MUSART_API extern std::atomic<uint32_t> watch_bits;

// Not 0 when somebody watches. Hot path.
inline uint32_t watched() { return watch_bits.load(std::memory_order_relaxed); }

enum class ActivityKind : uint8_t {
  kKernel,
  kCopy,              // `to_device`, `from_device`, -1 for the host
  kFill,              // musaMemset
  kStreamSync,        // the host waited for `stream`
  kDeviceSync,        // ... for all streams of `device`
  kEventSync,         // ... for `event`
  kStreamQuery,       // the host asked and the answer was: done
  kEventQuery,
  kEventRecord,       // `event` on `stream`
  kStreamWaitEvent,   // work given to `stream` from now on waits for `event`
  kStreamDestroy,
  kEventDestroy,
};

// A range that work touched: card memory by its device address; host memory only for copies.
struct MemoryAccess {
  const void* address;
  size_t bytes;
  bool written;  // it may have been read as well
};

struct Activity {
  ActivityKind kind;
  const char* name;  // of the operator or runtime call; lives as long as the process
  int device;
  musaStream_t stream = nullptr;  // NULL for kDeviceSync and what concerns an event alone
  musaEvent_t event = nullptr;
  musaSimSpan span{};  // on the stream for work, on the host's clock for synchronisation
  double flops = 0;
  double bytes = 0;  // moved, as the cost model counts them
  int to_device = -1;
  int from_device = -1;
  bool pinned = false;  // the host side of a copy is page-locked
  std::span<const MemoryAccess> accesses{};
};

class Watcher {
 public:
  virtual ~Watcher() = default;
  // In the thread that did it, after it was put on its stream or the wait is over. Its bytes have been moved.
  virtual void saw(const Activity& activity) noexcept = 0;
};

// Switches `watcher` on under one bit of Watch; replaces what was there.
MUSART_API void watch(Watch bit, Watcher* watcher);
MUSART_API void unwatch(Watch bit);
// Tells every watcher, and answers with what one of them had to object (musaSuccess: nothing): the status that the call
// should end with. Call it only when watched() isn't 0.
MUSART_API musaError_t tell(const Activity& activity) noexcept;
// From inside Watcher::saw: the activity was wrong, and its call must say so. `status` comes from fail().
MUSART_API void object(musaError_t status) noexcept;

}  // namespace musart
