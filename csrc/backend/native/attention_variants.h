// The ways to compute attention, and the choice among them.
#pragma once

#include "mudnn/attention.h"

namespace musa {

/// Computes it in the way that suits it best.
void run_attention(const mudnn::AttentionProblem& problem);

}  // namespace musa
