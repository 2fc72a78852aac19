// The backend's part of the registration with torch; torch_musa_sim/_register.py calls it once, before anything else.
#pragma once

namespace musa {

/// Storage factory, CPU allocator switch, bridge. Native kernels, guard and hooks register when the library is loaded.
/// Idempotent; initialises no card.
void register_backend();

}  // namespace musa
