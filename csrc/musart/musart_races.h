// Races between streams, found by what orders the accesses to memory and not by luck (TORCH_MUSA_SIM_STRICT).
//
// Who makes work for a card tells what memory it touches (musaSimAccess); the runtime itself knows which work waits for
// which. Two accesses to the same bytes, one of them a write, that no chain of waits orders are a race, whatever the
// virtual clock says. None of these may be called unless `watched() & kWatchRaces` (musart/watch.h).
#pragma once

#include "musart/musart_sim.h"

#ifdef __cplusplus
extern "C" {
#endif

// `op` (copied) on `stream` reads or writes `bytes` bytes at `address`: card memory by its device address, or
// page-locked host memory. musaErrorSimRace when an earlier access isn't ordered before it, or when the memory was
// freed; the detail is the whole report. With TORCH_MUSA_SIM_STRICT=warn the report goes to stderr, once for each pair.
MUSART_API musaError_t musaSimAccess(musaStream_t stream, const void* address, size_t bytes, int write, const char* op);
// The host reads page-locked memory for `op`: musaErrorSimRace when a copy to it hasn't been waited for.
MUSART_API musaError_t musaSimHostRead(const void* address, size_t bytes, const char* op);

// An allocator has handed out or taken back a block. Accesses of its former life are remembered: the new owner must be
// ordered behind them. After `musaSimBlockFreed` every access is an error until the block is handed out again.
MUSART_API void musaSimBlockTaken(const void* address, size_t bytes, musaStream_t stream);
MUSART_API void musaSimBlockFreed(const void* address, size_t bytes);
// The allocator has seen that `event` has passed: what it covers can't disturb a new owner of the block. NULL: nothing
// that was done to the block can.
MUSART_API void musaSimBlockSettled(const void* address, size_t bytes, musaEvent_t event);

typedef enum musaSimFinish {
  musaSimFinishDrop = 0,  // free the context, touch no memory
  musaSimFinishCopy = 1,  // bring the copy to its end
  musaSimFinishCompare = 2,  // as Copy, but the target was written by somebody else since: leave it
} musaSimFinish;

// An asynchronous copy between a card and page-locked memory, whose last part the host must not see before it has
// waited. `finish` is called once, from whatever call of whatever thread covers the copy; it returns 1 when it finds
// that the host has touched the memory in the meantime (a race, reported by that call), else 0, and frees `context`.
typedef struct musaSimDeferredCopy {
  const char* op;
  const void* host;
  size_t host_bytes;
  const void* device;
  size_t device_bytes;
  int to_host;
  int (*finish)(void* context, musaSimFinish how);
  void* context;
} musaSimDeferredCopy;

// To be called after both sides were reported with musaSimAccess on the same stream.
MUSART_API musaError_t musaSimDeferCopy(musaStream_t stream, const musaSimDeferredCopy* copy);

// As musaEventQuery and, with `wait`, musaEventSynchronize, for allocators: memory may be reused, but the program that
// caused the call hasn't waited for anything and gains no order from it. Works without kWatchRaces, too.
MUSART_API musaError_t musaSimEventPassed(musaEvent_t event, int wait);
// What is given to `stream` from now on waits for everything that `other` has been given. Works without kWatchRaces.
MUSART_API musaError_t musaSimStreamWaitStream(musaStream_t stream, musaStream_t other);

// How reports call a stream; writes at most `size` bytes with the final zero, nothing when it doesn't know the stream.
MUSART_API void musaSimSetStreamNamer(void (*name)(musaStream_t stream, char* text, size_t size));

// What host memory holds until an asynchronous copy to it has been waited for.
enum { musaSimPoison = 0xA5 };

#ifdef __cplusplus
}
#endif
