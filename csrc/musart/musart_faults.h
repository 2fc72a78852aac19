// Faults on demand: what a program does when a card fails, tried without breaking one.
//
// A fault is planned and happens once. A failed allocation leaves everything usable. After any other fault the card is
// dead for this process, as on hardware: every later call that needs it ends with the same error, until
// musaSimResetCard. Other cards go on.
#pragma once

#include "musart/musart.h"

#ifdef __cplusplus
extern "C" {
#endif

static const musaError_t musaErrorDevicesUnavailable = (musaError_t)46;  // the card is lost
static const musaError_t musaErrorECCUncorrectable = (musaError_t)214;
static const musaError_t musaErrorLaunchFailure = (musaError_t)719;  // of a kernel or a copy

typedef enum musaSimFault {
  musaSimFaultAllocation = 0,  // a request to an allocator on top of this runtime, which asks musaSimBeforeAllocation
  musaSimFaultSegment,  // musaMalloc
  musaSimFaultLaunch,  // a kernel or musaMemset
  musaSimFaultCopy,
  musaSimFaultLostCard,  // the card falls off the bus
  musaSimFaultMemory,  // an uncorrectable memory error
  musaSimFaultCount,
} musaSimFault;

typedef struct musaSimFaultPlan {
  musaSimFault fault;
  int device;  // -1: of any card (not for a lost card or a memory error)
  int64_t count;  // the count-th such call from now on, from 1; 0 for a lost card or a memory error
  int64_t after_ns;  // not before the host's virtual clock shows this
  const void* address;  // of a memory error: the range that is bad; NULL: the next work on the card finds it
  size_t bytes;
} musaSimFaultPlan;

MUSART_API musaError_t musaSimPlanFault(const musaSimFaultPlan* plan);
// Number of faults that are planned and haven't happened; the first `room` of them are written to `plans`.
MUSART_API int musaSimPlannedFaults(musaSimFaultPlan* plans, int room);
// Forgets what is planned. What has happened stays.
MUSART_API void musaSimClearFaults(void);

// musaSuccess, or the error that the card is dead of. Records no error of the calling thread.
MUSART_API musaError_t musaSimCardHealth(int device);
// The card as a new process finds it. Memory stays allocated; what it holds can't be relied on.
MUSART_API musaError_t musaSimResetCard(int device);

// For the caller of musaSimLaunch and musaSimLaunchCopy, before the work is done: does it fail? `name` is the
// operator's. Needed only while musart::watched() isn't 0.
MUSART_API musaError_t musaSimBeforeWork(musaStream_t stream, musaSimFault kind, const char* name);
// As musaSimBeforeWork for a card that takes part without having the stream, like the other end of a copy.
MUSART_API musaError_t musaSimCheckCard(int device, const char* name);
// Does this request of `bytes` fail?
MUSART_API musaError_t musaSimBeforeAllocation(int device, size_t bytes);

#ifdef __cplusplus
}
#endif
