// The errors of calls that can't be part of a graph, in CUDA's words. Each makes the capture invalid, as on a card.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "musart/musart_sim.h"

namespace musa::graph {

[[noreturn]] void refuse(musaStream_t stream, const std::string& what, const char* why);
/// The same when the calling thread's current stream of the card takes part in a capture.
void refuse_if_captured(c10::DeviceIndex card, const std::string& what, const char* why);
/// A copy between the card and host memory that isn't pinned.
[[noreturn]] void refuse_unpinned(musaStream_t stream);
/// Throws when `other`, which an operator also touches, takes no part in the capture of `owner` on `stream`.
void refuse_outside(musaStream_t other, const void* owner, musaStream_t stream, const std::string& what);

}  // namespace musa::graph
