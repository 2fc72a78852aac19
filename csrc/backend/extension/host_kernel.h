// For kernels on torch tensors: a function of the host that runs on card memory, in stream order, with a price.
//
//   at::Tensor twice(const at::Tensor& x) {
//     at::Tensor y = at::empty_like(x);
//     musa::launch_host_kernel(
//         "mylib::twice", {musa::reads(x), musa::writes(y)}, {.flops = double(x.numel())}, [&](void* const* pointers) {
//           const auto* in = static_cast<const float*>(pointers[0]);
//           auto* out = static_cast<float*>(pointers[1]);
//           for (int64_t i = 0; i < x.numel(); ++i) out[i] = 2 * in[i];
//         });
//     return y;
//   }
//   TORCH_LIBRARY_IMPL(mylib, PrivateUse1, m) { m.impl("twice", &twice); }
//
// An extension is compiled with torch_musa.utils.musa_extension and includes this as <torch_musa_sim/host_kernel.h>.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <functional>
#include <initializer_list>

namespace musa {

/// A tensor that a kernel touches; an undefined one is an argument that is left out. Contiguity is the caller's affair.
struct KernelTensor {
  const at::Tensor& tensor;
  bool written;
};

inline KernelTensor reads(const at::Tensor& tensor) { return {tensor, false}; }
/// The kernel may read it as well.
inline KernelTensor writes(const at::Tensor& tensor) { return {tensor, true}; }

/// What a real kernel would do. bytes: moved in card memory, negative: every tensor once. dtype: which of the card's
/// peak rates holds for `flops`, Undefined: that of the first tensor.
struct KernelCost {
  double flops = 0;
  double bytes = -1;
  at::ScalarType dtype = at::ScalarType::Undefined;
};

/// Runs `kernel` in the calling thread, on the current stream of the tensors' card; returns when it is done. It gets
/// the address of each tensor's first element (null for an undefined one), valid during the call. `name` must live as
/// long as the process: reports and torch.musa.op_statistics() know the launch by it.
/// Throws when the tensors lie on several cards or not on a card; what `kernel` throws passes through, and nothing is
/// launched then.
void launch_host_kernel(
    const char* name, std::initializer_list<KernelTensor> tensors, const KernelCost& cost,
    const std::function<void(void* const* pointers)>& kernel);

}  // namespace musa
