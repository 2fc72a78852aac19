#include "backend/bridge/cost.h"

#include <ATen/core/Tensor.h>

#include "backend/bridge/flops.h"

namespace musa {

namespace {

const at::Tensor* tensor_at(const torch::jit::Stack& stack, size_t index) {
  return index < stack.size() && stack[index].isTensor() ? &stack[index].toTensor() : nullptr;
}

// Each element of `a` meets every column of `b`.
double matmul_flops(const torch::jit::Stack& stack, size_t first) {
  const at::Tensor* a = tensor_at(stack, first);
  const at::Tensor* b = tensor_at(stack, first + 1);
  if (a == nullptr || b == nullptr) {
    return 0;
  }
  return 2.0 * static_cast<double>(a->numel()) * (b->dim() >= 2 ? static_cast<double>(b->size(-1)) : 1.0);
}

// q, k, v are (batch, heads, tokens, dim); `causal` is the argument two behind v.
double attention(const torch::jit::Stack& stack, size_t query, size_t causal, bool backward) {
  const at::Tensor* q = tensor_at(stack, query);
  const at::Tensor* k = tensor_at(stack, query + 1);
  const at::Tensor* v = tensor_at(stack, query + 2);
  if (q == nullptr || k == nullptr || v == nullptr || q->dim() != 4 || k->dim() != 4 || v->dim() != 4) {
    return 0;
  }
  const auto count = backward ? attention_backward_flops : attention_flops;
  return count(
      q->size(0), q->size(1), q->size(2), k->size(2), q->size(3), v->size(3),
      causal < stack.size() && stack[causal].isBool() && stack[causal].toBool());
}

}  // namespace

musaSimDtype cost_dtype(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Double:
    case c10::ScalarType::ComplexDouble:
      return musaSimFp64;
    case c10::ScalarType::Float:
    case c10::ScalarType::ComplexFloat:
      return musaSimFp32;
    case c10::ScalarType::Half:
    case c10::ScalarType::ComplexHalf:
      return musaSimFp16;
    case c10::ScalarType::BFloat16:
      return musaSimBf16;
    case c10::ScalarType::Float8_e4m3fn:
    case c10::ScalarType::Float8_e4m3fnuz:
    case c10::ScalarType::Float8_e5m2:
    case c10::ScalarType::Float8_e5m2fnuz:
      return musaSimFp8;
    case c10::ScalarType::Char:
    case c10::ScalarType::Byte:
      return musaSimInt8;
    case c10::ScalarType::Float4_e2m1fn_x2:
      return musaSimFp4;
    default:
      return musaSimInt32;
  }
}

double operator_flops(FlopRule rule, const torch::jit::Stack& stack, size_t first) {
  switch (rule) {
    case FlopRule::kMatmul:
      return matmul_flops(stack, first);
    case FlopRule::kMatmulAdd:
      return matmul_flops(stack, first + 1);
    case FlopRule::kAttention:
      return attention(stack, first, first + 4, /*backward=*/false);
    case FlopRule::kAttentionBackward:
      return attention(stack, first + 1, first + 7, /*backward=*/true);
    case FlopRule::kNone:
      break;
  }
  return 0;
}

}  // namespace musa
