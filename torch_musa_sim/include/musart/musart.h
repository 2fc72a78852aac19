// The simulated MUSA driver and runtime: a C API under the real runtime's names, no torch.
//
// Every function returns a status; `musaSimGetLastErrorDetail` says in one sentence what was wrong. Nothing is
// initialised before the first call that needs a card, so that loading the library is free.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MUSART_API __attribute__((visibility("default")))
#else
#define MUSART_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum musaError {
  musaSuccess = 0,
  musaErrorInvalidValue = 1,
  musaErrorMemoryAllocation = 2,
  musaErrorInitializationError = 3,
  musaErrorInvalidMemcpyDirection = 21,
  musaErrorNoDevice = 100,
  musaErrorInvalidDevice = 101,
  musaErrorInvalidResourceHandle = 400,
  musaErrorNotReady = 600,
  musaErrorPeerAccessAlreadyEnabled = 704,
  musaErrorPeerAccessNotEnabled = 705,
  musaErrorHostMemoryAlreadyRegistered = 712,
  musaErrorHostMemoryNotRegistered = 713,
  musaErrorNotSupported = 801,
  musaErrorUnknown = 999,
  musaErrorSimHostMemory = 10001,  // the host, not the card, has no memory left
  musaErrorSimForked = 10002,      // the device was used before fork(); the child must be spawned
  musaErrorSimRace = 10003,        // two accesses to the same memory that nothing orders; TORCH_MUSA_SIM_STRICT
} musaError_t;

MUSART_API const char* musaGetErrorName(musaError_t error);
MUSART_API const char* musaGetErrorString(musaError_t error);
MUSART_API musaError_t musaGetLastError(void);
MUSART_API musaError_t musaPeekAtLastError(void);
// The sentence behind the calling thread's last failed call; valid until its next failed call.
MUSART_API const char* musaSimGetLastErrorDetail(void);

// ---- cards -----------------------------------------------------------------------------------------------------

typedef struct musaDeviceProp {
  char name[256];
  unsigned char uuid[16];
  size_t totalGlobalMem;  // bytes
  size_t sharedMemPerBlock;
  size_t sharedMemPerMultiprocessor;
  int regsPerBlock;
  int regsPerMultiprocessor;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsPerMultiProcessor;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int clockRate;  // kHz
  int major;
  int minor;
  int multiProcessorCount;
  int memoryClockRate;  // kHz
  int memoryBusWidth;   // bit
  int l2CacheSize;      // bytes
  int asyncEngineCount;
  int concurrentKernels;
  int integrated;
  int isMultiGpuBoard;
  int pciBusID;
  int pciDeviceID;
  int pciDomainID;
} musaDeviceProp;

// Number of visible cards; 0 (not an error) when MUSA_VISIBLE_DEVICES hides all. Reports a bad environment value.
MUSART_API musaError_t musaGetDeviceCount(int* count);
MUSART_API musaError_t musaSetDevice(int device);  // of the calling thread
MUSART_API musaError_t musaGetDevice(int* device);
MUSART_API musaError_t musaGetDeviceProperties(musaDeviceProp* prop, int device);
MUSART_API musaError_t musaDeviceCanAccessPeer(int* can, int device, int peer);
MUSART_API musaError_t musaDeviceEnablePeerAccess(int peer, unsigned int flags);
MUSART_API musaError_t musaDeviceDisablePeerAccess(int peer);
MUSART_API musaError_t musaDeviceGetStreamPriorityRange(int* least, int* greatest);
MUSART_API musaError_t musaDeviceSynchronize(void);
MUSART_API musaError_t musaDriverGetVersion(int* version);
MUSART_API musaError_t musaRuntimeGetVersion(int* version);

// ---- memory ----------------------------------------------------------------------------------------------------

typedef enum musaMemcpyKind {
  musaMemcpyHostToHost = 0,
  musaMemcpyHostToDevice = 1,
  musaMemcpyDeviceToHost = 2,
  musaMemcpyDeviceToDevice = 3,
  musaMemcpyDefault = 4,
} musaMemcpyKind;

typedef enum musaMemoryType {
  musaMemoryTypeUnregistered = 0,
  musaMemoryTypeHost = 1,
  musaMemoryTypeDevice = 2,
} musaMemoryType;

typedef struct musaPointerAttributes {
  musaMemoryType type;
  int device;           // -1 for host memory
  void* devicePointer;  // NULL for host memory
  void* hostPointer;    // NULL for device memory: the host can't read it
} musaPointerAttributes;

typedef struct MusaStream* musaStream_t;  // NULL: the default stream of the calling thread's card
typedef struct MusaEvent* musaEvent_t;

// A range of the current card, `size` rounded up to 512 bytes; addresses are multiples of 512 (of 2 MiB from 2 MiB on).
// musaErrorMemoryAllocation: the card is full, counting every process of this user in the same scope.
// musaErrorSimHostMemory: the host is full.
MUSART_API musaError_t musaMalloc(void** pointer, size_t size);
MUSART_API musaError_t musaFree(void* pointer);  // NULL is a no-op; waits for nothing
MUSART_API musaError_t musaMemGetInfo(size_t* free_bytes, size_t* total_bytes);  // of the current card
MUSART_API musaError_t musaMallocHost(void** pointer, size_t size);              // page-locked host memory
MUSART_API musaError_t musaFreeHost(void* pointer);
// Makes memory of the program's own page-locked, so that copies treat it as they treat musaMallocHost's. `flags`: 0, or
// any of the bits below 16, which change nothing here. The range must be registered once only, and unregistered by its
// start before it is freed.
MUSART_API musaError_t musaHostRegister(void* pointer, size_t size, unsigned int flags);
MUSART_API musaError_t musaHostUnregister(void* pointer);
MUSART_API musaError_t musaPointerGetAttributes(musaPointerAttributes* attributes, const void* pointer);
MUSART_API musaError_t musaMemcpy(void* to, const void* from, size_t bytes, musaMemcpyKind kind);
MUSART_API musaError_t
musaMemcpyAsync(void* to, const void* from, size_t bytes, musaMemcpyKind kind, musaStream_t stream);
MUSART_API musaError_t
musaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, musaStream_t stream);
MUSART_API musaError_t musaMemset(void* pointer, int value, size_t bytes);
MUSART_API musaError_t musaMemsetAsync(void* pointer, int value, size_t bytes, musaStream_t stream);

// As musaMalloc, backed by a file that another process may map; *fd stays owned by the runtime.
MUSART_API musaError_t musaSimMallocShareable(void** pointer, size_t size, int* fd);

// ---- streams and events ----------------------------------------------------------------------------------------

enum { musaStreamDefault = 0, musaStreamNonBlocking = 1 };
enum { musaEventDefault = 0, musaEventBlockingSync = 1, musaEventDisableTiming = 2, musaEventInterprocess = 4 };

MUSART_API musaError_t musaStreamCreate(musaStream_t* stream);
MUSART_API musaError_t musaStreamCreateWithFlags(musaStream_t* stream, unsigned int flags);
MUSART_API musaError_t musaStreamCreateWithPriority(musaStream_t* stream, unsigned int flags, int priority);
MUSART_API musaError_t musaStreamDestroy(musaStream_t stream);
MUSART_API musaError_t musaStreamGetPriority(musaStream_t stream, int* priority);
MUSART_API musaError_t musaStreamGetFlags(musaStream_t stream, unsigned int* flags);
MUSART_API musaError_t musaStreamSynchronize(musaStream_t stream);
// musaSuccess when the host clock has reached the stream's tail, else musaErrorNotReady. Each unsuccessful query
// advances the host clock by one polling interval, so that a polling loop ends.
MUSART_API musaError_t musaStreamQuery(musaStream_t stream);
MUSART_API musaError_t musaStreamWaitEvent(musaStream_t stream, musaEvent_t event, unsigned int flags);

MUSART_API musaError_t musaEventCreate(musaEvent_t* event);
MUSART_API musaError_t musaEventCreateWithFlags(musaEvent_t* event, unsigned int flags);
MUSART_API musaError_t musaEventDestroy(musaEvent_t event);
MUSART_API musaError_t musaEventRecord(musaEvent_t event, musaStream_t stream);
MUSART_API musaError_t musaEventQuery(musaEvent_t event);
MUSART_API musaError_t musaEventSynchronize(musaEvent_t event);
MUSART_API musaError_t musaEventElapsedTime(float* milliseconds, musaEvent_t start, musaEvent_t end);
MUSART_API musaError_t musaSimEventElapsedNs(int64_t* nanoseconds, musaEvent_t start, musaEvent_t end);

#ifdef __cplusplus
}
#endif
