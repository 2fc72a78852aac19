// The bridge: one boxed function that runs ATen's CPU kernel of any operator on card memory, without a copy.
#pragma once

namespace musa {

/// Registers the bridge for every operator of ATen that has a CPU kernel or a native one and no registration of ours
/// yet, and as the fallback for all others. Explicit registration is needed where a composite kernel would win over a
/// fallback. Idempotent; call it after the native kernels are registered.
void register_bridge();

}  // namespace musa
