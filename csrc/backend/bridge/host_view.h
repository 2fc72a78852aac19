// How our own code runs a CPU kernel on card memory: show the arguments as CPU tensors, let results be allocated on
// the card, map them back. Nothing is copied.
//
//   at::Tensor sum_of(const at::Tensor& x) {
//     CardScope scope(x.device(), "sum_of");
//     return scope.result(at::sum(scope.view(x)));
//   }
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "musart/musart_sim.h"

namespace musa {

/// CPU tensor over the alias of a strided musa tensor, sharing its memory; conj / neg / zero-tensor bits are kept.
/// A CPU or undefined tensor is returned as it is.
at::Tensor host_view(const at::Tensor& tensor);

/// musa tensor over a CPU tensor whose storage lies in card memory; any other CPU tensor is copied (and counted).
at::Tensor card_tensor(const at::Tensor& cpu, c10::Device device);

/// While it lives, the calling thread runs below autograd and ADInplaceOrView and what CPU kernels allocate comes from
/// `device`'s memory. On success of the caller's work, `launch` (or the destructor, with the bytes of all views and
/// results) advances the stream's virtual clock and the op's counters.
class CardScope {
 public:
  CardScope(c10::Device device, const char* op);
  ~CardScope();
  CardScope(const CardScope&) = delete;
  CardScope& operator=(const CardScope&) = delete;

  at::Tensor view(const at::Tensor& tensor);
  std::optional<at::Tensor> view(const std::optional<at::Tensor>& tensor);
  at::Tensor result(const at::Tensor& cpu);

  /// Overrides the modelled cost (default: bytes of everything shown and returned, no flops).
  void set_cost(double flops, musaSimDtype dtype);

 private:
  c10::Device device_;
  const char* op_;
  int exceptions_;
  musaSimCost cost_{};
  c10::InferenceMode inference_;
  void* outer_;
};

/// Arithmetic class of a scalar type for the cost model.
musaSimDtype cost_dtype(c10::ScalarType type);

}  // namespace musa
