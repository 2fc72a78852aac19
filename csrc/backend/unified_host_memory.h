// Host tensors in memory that the cards reach too.
#pragma once

namespace musa {

/// On: what torch's CPU allocator hands out from now on is page-locked, so that copies to a card need no staging.
void set_unified_host_memory(bool on);
bool is_unified_host_memory();

}  // namespace musa
