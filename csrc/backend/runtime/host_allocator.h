// Page-locked host memory: the allocator behind pin_memory.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace musa {

/// Caches freed blocks; a block that a stream still copies from (record_event) is not reused before that is done.
at::Allocator* host_allocator();

/// True when `address` lies anywhere inside page-locked memory. Initialises nothing; false in a forked child.
bool is_pinned(const void* address);

/// An asynchronous copy on `stream` reads or writes `data`: its block isn't reused before that is done. Memory that is
/// none of the allocator's is left alone.
void record_pinned_use(const c10::DataPtr& data, c10::Stream stream);

}  // namespace musa
