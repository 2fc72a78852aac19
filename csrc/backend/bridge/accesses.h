// What strict mode asks of whoever runs work on a card: to say which memory it reads and writes
// (musart/musart_races.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/macros/Macros.h>

#include "musart/musart_races.h"
#include "musart/watch.h"

namespace musa {

/// One relaxed load; everything below is to be called only when it says yes.
inline bool watches_races() { return C10_UNLIKELY((musart::watched() & musart::kWatchRaces) != 0); }

struct MemoryRange {
  const void* address;  // of the device, or of the host for a CPU tensor; nullptr when the tensor has no element
  size_t bytes;         // from the first to behind the last element: the gaps of a strided tensor count as touched
};
/// The memory of a strided tensor, musa, CPU, or shown to a CPU kernel.
MemoryRange memory_of(const c10::TensorImpl& tensor);

/// `op` on `stream` reads, or writes, the memory of `tensor` on a card; a tensor in host memory is passed over. Throws
/// RuntimeError with the report when that is a race.
void report_access(musaStream_t stream, const c10::TensorImpl& tensor, bool written, const char* op);

/// A CPU tensor that `op` reads on the host: throws when a copy to it hasn't been waited for, or when it lies in a
/// card's memory, where no CPU tensor of the user's may be.
void check_host_tensor(const at::Tensor& tensor, const char* op);

}  // namespace musa
