// Page-locked host memory: the allocator behind pin_memory.
#pragma once

#include <c10/core/Allocator.h>

namespace musa {

/// Caches freed blocks; a block that a stream still copies from (record_event) is not reused before that is done.
at::Allocator* host_allocator();

/// True when `address` lies anywhere inside page-locked memory. Initialises nothing; false in a forked child.
bool is_pinned(const void* address);

}  // namespace musa
