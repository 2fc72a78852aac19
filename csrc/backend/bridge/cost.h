// Operation counts of bridged operators, from the shapes of their arguments.
#pragma once

#include <ATen/core/stack.h>

#include "backend/bridge/op_table.h"

namespace musa {

/// `first` is the position of the operator's first argument on the stack. 0 when the arguments don't fit the rule.
double operator_flops(FlopRule rule, const torch::jit::Stack& stack, size_t first);

}  // namespace musa
