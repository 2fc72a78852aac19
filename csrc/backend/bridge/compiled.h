// How code that a compiler generated for the CPU runs on card memory: its arguments are shown as CPU tensors over the
// card, what it allocates comes from the card, its results are mapped back. Nothing is copied but what changes device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <vector>

#include "backend/bridge/below_autograd.h"
#include "backend/bridge/counters.h"
#include "backend/bridge/launch.h"
#include "backend/storage.h"
#include "musart/musart_sim.h"

namespace musa {

/// What is known of a piece of generated code before it runs.
struct CompiledFacts {
  c10::Device device;  // its card: allocations come from there and the launch is counted there
  OpCounters* counters;
  musaSimDtype dtype;  // arithmetic class of its matrix products
  bool synchronizes;   // the host waits for a value that it computes
};

/// One run. Between construction and `finish` the calling thread is below autograd and allocates on the card; whoever
/// leaves before `finish`, by an exception, has launched nothing.
class CompiledRun {
 public:
  explicit CompiledRun(const CompiledFacts& facts);
  ~CompiledRun();
  CompiledRun(const CompiledRun&) = delete;
  CompiledRun& operator=(const CompiledRun&) = delete;

  /// The argument as the code is to see it: a CPU view of a musa tensor, any other tensor as it is. Holds no memory:
  /// a musa tensor that the caller lets go is freed when the code drops its view. `written`: the code changes it.
  at::Tensor show(const at::Tensor& argument, bool written);
  /// Ends the run: back in the caller's state, ready for `take`.
  void finish();
  /// A result for `device`: the very argument if the code returned one, a view of an argument's or another result's
  /// storage if it lies there, else a tensor of its own. Memory that isn't `device`'s is copied there.
  at::Tensor take(const at::Tensor& result, c10::Device device);
  /// Advances the stream's virtual clock by the modelled cost, and the counters.
  void launch(double flops);

 private:
  struct Argument {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> original;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> shown;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // of the original
    const void* memory;                                 // where the storage begins for kernels
  };

  c10::Storage storage_of(const c10::Storage& cpu, c10::Device device);
  /// The code also touches memory of another card: its launch comes after what that card's stream was given before,
  /// and before what it is given later.
  void join(c10::Device device);

  const CompiledFacts& facts_;
  Launch launch_;
  double bytes_ = 0;
  c10::SmallVector<Argument, 8> arguments_;
  c10::SmallVector<musaStream_t, 1> joined_;  // streams of other cards
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> fresh_;
  std::optional<AllocateOnCard> memory_;
  std::optional<BelowAutograd> state_;
};

}  // namespace musa
