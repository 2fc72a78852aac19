// The way in for people who write kernels: a function of the host that runs in stream order on card memory, and a
// price.
//
//   static void axpy(void* const* pointers, const musaKernelArgs* args, void* user) {
//     const float* x = (const float*)pointers[0];
//     float* y = (float*)pointers[1];
//     for (size_t i = 0; i < args->bytes[1] / sizeof(float); ++i) y[i] += *(const float*)user * x[i];
//   }
//   void* ranges[] = {x, y};                       // device addresses, from musaMalloc or a tensor's data_ptr()
//   size_t bytes[] = {4096, 4096};
//   unsigned char written[] = {0, 1};
//   musaKernelArgs args = {"axpy", 2, ranges, bytes, written, {2048, 3 * 4096, musaSimFp32}};
//   musaLaunchHostKernel(axpy, &args, &alpha, stream);
#pragma once

#include "musart/musart.h"
#include "musart/musart_sim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct musaKernelArgs {
  const char* name;              // in reports; lives as long as the process
  int count;                     // of the ranges below; 0 .. musaSimMaxKernelRanges
  void* const* ranges;           // device addresses on the stream's card; NULL: an argument that is left out
  const size_t* bytes;           // size of each range; it must lie in one allocation
  const unsigned char* written;  // 1: the kernel writes it (it may read it as well); NULL: it writes all of them
  musaSimCost cost;              // what a real kernel would do: operations, bytes moved, arithmetic class
} musaKernelArgs;

enum { musaSimMaxKernelRanges = 1024 };

// `pointers[i]` is where the host may read and write range i. Use it during the call only. Must not throw.
typedef void (*musaHostKernel_t)(void* const* pointers, const musaKernelArgs* args, void* user);

// Runs `kernel` on `stream` (NULL: the default stream of the thread's card), in the calling thread, before this
// returns; on the virtual clock it starts and ends when a kernel of that cost would. `user` is passed on.
// musaErrorInvalidValue when an argument is wrong, with nothing run. A stream that is being captured refuses it: a
// graph records operators of torch.
MUSART_API musaError_t
musaLaunchHostKernel(musaHostKernel_t kernel, const musaKernelArgs* args, void* user, musaStream_t stream);

#ifdef __cplusplus
}
#endif
