// Strict mode: a non-blocking copy between a card and page-locked memory, whose end the host sees when it has waited.
#pragma once

#include <ATen/core/Tensor.h>

#include "musart/musart_sim.h"

namespace musa {

/// Whether the copy can be kept apart: no conjugate or negative bit on either side (CPU views).
bool can_defer(const at::Tensor& target, const at::Tensor& source);

/// Copies `source` to `target`, of which the one on the card is shown as a CPU tensor; same sizes. To the host: until
/// the copy is waited for the target holds bytes of 0xA5, and then what the source held now. To the card: the bytes
/// arrive at once, and if the host has changed the source by the time the copy is waited for, that wait reports it.
void copy_deferred(
    const at::Tensor& target, const at::Tensor& source, bool to_host, musaStream_t stream, const char* op);

}  // namespace musa
