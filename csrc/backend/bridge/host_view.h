// How our own code runs a CPU kernel on card memory: show the arguments as CPU tensors, let results be allocated on
// the card, map them back. Nothing is copied.
//
//   at::Tensor sum_of(const at::Tensor& x) {
//     CardScope scope(x.device(), "sum_of");
//     return scope.result(at::sum(scope.view(x)));
//   }
#pragma once

#include <ATen/core/Tensor.h>

#include "backend/bridge/below_autograd.h"
#include "backend/bridge/cost.h"
#include "backend/bridge/launch.h"
#include "backend/storage.h"

namespace musa {

/// CPU tensor over the alias of a strided musa tensor, sharing its memory; conj / neg / zero-tensor bits are kept.
/// A CPU or undefined tensor is returned as it is. Throws NotImplementedError for what has no strided storage.
at::Tensor host_view(const at::Tensor& tensor);

/// musa tensor over a CPU tensor whose storage lies in card memory; any other CPU tensor is copied (and counted).
/// Call it in the caller's thread state (CardScope::result does).
at::Tensor card_tensor(const at::Tensor& cpu, c10::Device device);

/// While it lives, the calling thread runs below autograd and what CPU kernels allocate comes from `device`'s memory.
/// Unless an exception leaves it, its end advances the stream's virtual clock and the op's counters.
class CardScope {
 public:
  /// `op` must be a string with static lifetime: the name under which the op is counted.
  CardScope(c10::Device device, const char* op);
  /// The op is a copy of `bytes` without arithmetic.
  CardScope(c10::Device device, const char* op, const CopyRoute& route, size_t bytes);
  ~CardScope();
  CardScope(const CardScope&) = delete;
  CardScope& operator=(const CardScope&) = delete;

  at::Tensor view(const at::Tensor& tensor);
  /// As view, for a tensor that the kernel writes to.
  at::Tensor written(const at::Tensor& tensor);
  std::optional<at::Tensor> view(const std::optional<at::Tensor>& tensor);
  /// The musa tensor over a result of a CPU kernel run in this scope.
  at::Tensor result(const at::Tensor& cpu);
  /// Runs `make` in the caller's thread state: for a tensor that result() can't make.
  template <class F>
  auto outside(F&& make) {
    return state_.outside(std::forward<F>(make));
  }

  /// Operations done and their arithmetic class (default: none, class of the first tensor shown).
  void set_cost(double flops, musaSimDtype dtype);
  /// Nothing runs on the card (metadata only): neither clock nor counters move.
  void set_no_launch() { launches_ = false; }
  /// The host waits for the stream, as CUDA does for this op.
  void set_synchronizes() { synchronizes_ = true; }

 private:
  CardScope(c10::Device device, const char* op, const CopyRoute* route);
  void note_access(const at::Tensor& tensor, const at::Tensor& shown, bool written);

  c10::Device device_;
  OpCounters* counters_;
  int exceptions_;
  bool synchronizes_ = false;
  bool dtype_known_ = false;
  bool launches_ = true;
  musaSimCost cost_{};
  std::optional<CopyRoute> route_;  // of a copy
  Launch launch_;
  AllocateOnCard memory_;
  BelowAutograd state_;
};

}  // namespace musa
