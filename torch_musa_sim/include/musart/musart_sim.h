// What only a simulated card has: the host alias of device memory, the cost model, the virtual clocks, the settings.
#pragma once

#include "musart/musart.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- the two mappings ------------------------------------------------------------------------------------------
// `base` .. `base + cards * stride` are the addresses a program sees (PROT_NONE: the host dies when it touches them).
// The same memory lies readable and writable at a constant distance; only kernels use that alias.
typedef struct musaSimArena {
  uintptr_t base;          // 0 until the device is initialised
  uintptr_t alias_base;    // base + alias_distance
  ptrdiff_t alias_distance;
  size_t stride;           // bytes of address space per card
  int cards;               // visible cards
} musaSimArena;

// Written once by initialisation, constant afterwards.
MUSART_API extern musaSimArena musaSimArenaInfo;

// Initialises cards and memory (idempotent, thread-safe). Reports bad environment values and fork misuse.
MUSART_API musaError_t musaSimInit(void);
MUSART_API int musaSimIsInitialized(void);
// 1 in a child forked after the device was initialised; every other call then returns musaErrorSimForked.
MUSART_API int musaSimInBadFork(void);
// Process-wide; called once from the SIGSEGV handler after its line was printed, to print the caller's stack
// (async-signal-safe code only). NULL: none.
MUSART_API void musaSimSetFaultCallback(void (*print_stack)(void));
// Address of the block and its size for the fault line; set by an allocator that cuts segments into blocks.
// Called from a signal handler: must take no lock. Returns 0 when the address belongs to no block.
MUSART_API void musaSimSetBlockLookup(int (*lookup)(const void* address, const void** block, size_t* size));

// ---- cards -----------------------------------------------------------------------------------------------------
typedef enum musaSimDtype {  // arithmetic classes with a peak of their own
  musaSimFp64 = 0,
  musaSimFp32,
  musaSimTf32,
  musaSimFp16,
  musaSimBf16,
  musaSimFp8,
  musaSimInt8,
  musaSimFp4,
  musaSimInt32,  // also every other integer and bool
  musaSimDtypeCount,
} musaSimDtype;

typedef struct musaSimCard {
  char model[32];         // "S5000"
  size_t memory;          // bytes, after TORCH_MUSA_SIM_MEMORY
  double peak[musaSimDtypeCount];  // operations per second at full rate, times its efficiency factor
  double bandwidth;       // bytes per second of device memory, times its efficiency factor
  double host_link;       // bytes per second from pinned host memory to the card
  double host_link_back;  // bytes per second from the card to pinned host memory
  double host_link_pageable;  // as host_link, pageable memory
  double host_link_pageable_back;  // as host_link_back, pageable memory
  double card_link;       // bytes per second to one peer, one direction
  int64_t launch_ns;      // host time to submit one kernel or copy
  int64_t sync_ns;        // host time of a synchronising call on top of the wait
  int64_t alloc_ns;       // host time of a segment allocation or release
  int64_t poll_ns;        // host time of one unsuccessful query
  int64_t kernel_ns;      // device time of an empty kernel
  int64_t copy_ns;        // device time of an empty copy
} musaSimCard;

MUSART_API musaError_t musaSimGetCard(int device, const musaSimCard** card);

// ---- cost and clocks (nanoseconds since the process's first use of the device) ----------------------------------
typedef struct musaSimCost {
  double flops;        // operations of the class `dtype`; a multiply-add counts as two
  double bytes;        // bytes read plus bytes written in device memory
  musaSimDtype dtype;
} musaSimCost;

typedef struct musaSimSpan {  // when a launch ran on the device
  int64_t start_ns;
  int64_t end_ns;
} musaSimSpan;

// Modelled device time of one kernel: kernel_ns + max(flops / peak, bytes / bandwidth), each term rounded up.
MUSART_API int64_t musaSimKernelNs(const musaSimCard* card, const musaSimCost* cost);
// Advances the host clock by launch_ns; the kernel starts at max(host clock after that, stream tail).
// `span` may be NULL. Hot path: takes no lock but the stream's own.
MUSART_API musaError_t musaSimLaunch(musaStream_t stream, const musaSimCost* cost, musaSimSpan* span);
// As musaSimLaunch for a copy whose data movement the caller does itself. `pinned`: the host side is page-locked.
// Devices -1 mean the host. A device-to-host or pageable copy that is not asynchronous also waits (see musaMemcpy).
MUSART_API musaError_t
musaSimLaunchCopy(musaStream_t stream, int to_device, int from_device, size_t bytes, int pinned, musaSimSpan* span);
MUSART_API int64_t musaSimHostClock(void);
MUSART_API void musaSimHostAdvance(int64_t nanoseconds);
MUSART_API int64_t musaSimStreamTail(musaStream_t stream);
// The default stream of a card (a real handle, so that a thread needs no musaSetDevice to launch on it).
MUSART_API musaError_t musaSimDefaultStream(int device, musaStream_t* stream);
MUSART_API int musaSimStreamDevice(musaStream_t stream);
// 1 when `handle` is a stream that lives; reads nothing behind it.
MUSART_API int musaSimStreamIsAlive(const void* handle);
MUSART_API int64_t musaSimStreamId(musaStream_t stream);  // unique in the process, 0 for a card's default stream

// ---- settings --------------------------------------------------------------------------------------------------
// Every environment variable of the project is declared in musart/settings.cpp and read through these.
typedef struct musaSimSetting {
  const char* name;           // TORCH_MUSA_SIM_CARDS
  const char* accepted;       // "1 .. 512"
  const char* default_value;  // "8"
  const char* about;          // one line
} musaSimSetting;

MUSART_API int musaSimSettingCount(void);
MUSART_API const musaSimSetting* musaSimSettingAt(int index);
// The value in force as text (default when unset); NULL for an unknown name.
MUSART_API const char* musaSimSettingValue(const char* name);
// musaErrorInvalidValue with a detail when a variable holds a value that isn't accepted; checks all of them.
MUSART_API musaError_t musaSimCheckSettings(void);
// Typed reads; the caller names a declared variable. Malformed values were refused by musaSimCheckSettings.
MUSART_API int musaSimSettingFlag(const char* name);
MUSART_API int64_t musaSimSettingInt(const char* name);
MUSART_API int64_t musaSimSettingBytes(const char* name);  // "80GiB" -> bytes; -1 when unset

#ifdef __cplusplus
}

namespace musart {
inline bool is_device_pointer(const void* p) {
  return reinterpret_cast<uintptr_t>(p) - musaSimArenaInfo.base <
      musaSimArenaInfo.stride * static_cast<size_t>(musaSimArenaInfo.cards);
}
inline bool is_alias_pointer(const void* p) {
  return reinterpret_cast<uintptr_t>(p) - musaSimArenaInfo.alias_base <
      musaSimArenaInfo.stride * static_cast<size_t>(musaSimArenaInfo.cards);
}
inline void* to_alias(const void* device_pointer) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(device_pointer) + musaSimArenaInfo.alias_distance);
}
inline void* to_device(const void* alias_pointer) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(alias_pointer) - musaSimArenaInfo.alias_distance);
}
inline int device_of(const void* device_pointer) {
  return static_cast<int>(
      (reinterpret_cast<uintptr_t>(device_pointer) - musaSimArenaInfo.base) / musaSimArenaInfo.stride);
}
}  // namespace musart
#endif
