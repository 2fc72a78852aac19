// The modelled cost of an operator: arithmetic class, and operation counts from the shapes of its arguments.
#pragma once

#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>

#include "backend/bridge/op_table.h"
#include "musart/musart_sim.h"

namespace musa {

/// Arithmetic class of a scalar type for the cost model.
musaSimDtype cost_dtype(c10::ScalarType type);

/// `first` is the position of the operator's first argument on the stack. 0 when the arguments don't fit the rule.
double operator_flops(FlopRule rule, const torch::jit::Stack& stack, size_t first);

}  // namespace musa
