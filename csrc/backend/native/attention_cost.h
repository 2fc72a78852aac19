// What musa::attention and musa::attention_varlen cost on the modelled card, from shapes and numbers alone.
#pragma once

#include "backend/native/kernels.h"

namespace musa {

/// Pairs that the window hides cost nothing, nor do keys that no query sees. What a mask or a block_mask hides counts:
/// it lies in values.
OpCost attention_cost(const c10::IValue* arguments);

/// As if all sequences had the same length, as starts are values.
OpCost attention_varlen_cost(const c10::IValue* arguments);

}  // namespace musa
