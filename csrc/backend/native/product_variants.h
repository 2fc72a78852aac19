// The ways to compute a matrix product, and the choice among them.
#pragma once

#include "mudnn/gemm.h"

namespace musa {

/// Computes it in the way that suits it best. The result overlaps no operand but, element by element, the addend.
void run_product(const mudnn::GemmProblem& problem);

}  // namespace musa
