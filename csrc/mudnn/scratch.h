// Working memory of a kernel call, kept per thread: fresh memory of this size would be page-faulted on every call.
#pragma once

#include <stddef.h>

namespace mudnn {

/// At least `bytes` bytes of the calling thread, aligned to 64; what was in them is lost. Valid until the next call
/// with the same `slot` (0 .. 3) in this thread. Throws std::bad_alloc.
void* scratch(int slot, size_t bytes);

}  // namespace mudnn
