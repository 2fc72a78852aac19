// Where float32 products may run in TF32: torch's own flags decide (torch.backends.{cuda,musa}.matmul, cudnn, mudnn),
// and only the modelled time changes, never a value.
#pragma once

#include "backend/bridge/op_table.h"
#include "musart/musart_sim.h"

namespace musa {

/// Below this a product is bound by memory on every card, and its arithmetic class doesn't matter.
constexpr double kTf32Matters = 1 << 20;

/// Arithmetic class of a matrix product of class `dtype` / of a convolution.
musaSimDtype matmul_class(musaSimDtype dtype);
musaSimDtype convolution_class(musaSimDtype dtype);

/// As matmul_class, for an operator of the op table.
inline musaSimDtype product_class(FlopRule rule, double flops, musaSimDtype dtype) {
  const bool product = rule == FlopRule::kMatmul || rule == FlopRule::kMatmulAdd;
  return __builtin_expect(flops >= kTf32Matters && product, 0) ? matmul_class(dtype) : dtype;
}

}  // namespace musa
