// The bridge: one boxed function that runs ATen's CPU kernel of any operator on card memory, without a copy.
#pragma once

namespace musa {

/// Registers the bridge for every operator with a CPU kernel and no kernel of our own, and as the fallback for all
/// others. Explicit registration is needed where a composite kernel would win over a fallback. Idempotent; call it
/// after the native kernels are registered.
void register_bridge();

}  // namespace musa
