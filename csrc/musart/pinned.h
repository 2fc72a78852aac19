// Page-locked host memory: a plain mapping that copies recognise.
#pragma once

namespace musart {

// Whether `pointer` lies inside memory from musaMallocHost.
bool is_pinned(const void* pointer);

}  // namespace musart
