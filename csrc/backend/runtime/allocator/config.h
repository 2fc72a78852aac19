// PYTORCH_MUSA_ALLOC_CONF, on top of torch's own PYTORCH_ALLOC_CONF.
#pragma once

namespace musa::allocator {

/// Checks and applies the variables (the first call that succeeds does it). Throws ValueError for a key or a value that
/// isn't accepted, with the accepted keys.
void apply_config();

}  // namespace musa::allocator
