#include "backend/extension/host_kernel.h"

#include <c10/util/SmallVector.h>

#include <optional>

#include "backend/bridge/accesses.h"
#include "backend/bridge/cost.h"
#include "backend/bridge/counters.h"
#include "backend/bridge/launch.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "musart/musart_capture.h"

namespace musa {
namespace {

c10::Device card_of(const char* name, c10::ArrayRef<KernelTensor> tensors) {
  std::optional<c10::Device> card;
  for (const KernelTensor& argument : tensors) {
    if (!argument.tensor.defined()) {
      continue;
    }
    const c10::Device device = argument.tensor.device();
    TORCH_CHECK(
        device.type() == kMusa, "launch_host_kernel(", name, "): a tensor is on ", device,
        "; a kernel reaches card memory only. Move the tensor to the card first");
    TORCH_CHECK(
        argument.tensor.layout() == c10::kStrided && argument.tensor.has_storage(), "launch_host_kernel(", name,
        "): a tensor has no strided memory; pass its parts");
    TORCH_CHECK(
        !card.has_value() || *card == device,
        "Expected all tensors to be on the same device, but found at least two "
        "devices, ",
        *card, " and ", device, "! (in launch_host_kernel ", name, ")");
    card = device;
  }
  TORCH_CHECK(card.has_value(), "launch_host_kernel(", name, "): no tensor says which card to run on");
  return *card;
}

void* host_address(const at::Tensor& tensor, const char* name) {
  if (!tensor.defined() || tensor.numel() == 0) {
    return nullptr;
  }
  void* address = tensor.data_ptr();
  TORCH_CHECK(address != nullptr, "launch_host_kernel(", name, "): a tensor has elements and no memory");
  return musart::to_alias(address);
}

}  // namespace

void launch_host_kernel(
    const char* name, std::initializer_list<KernelTensor> tensors, const KernelCost& cost,
    const std::function<void(void* const* pointers)>& kernel) {
  const c10::Device card = card_of(name, tensors);
  Launch launch;
  launch.begin(card.index());
  TORCH_CHECK(
      musaSimCaptureCount() == 0 || musaSimCaptureOwner(launch.stream()) == nullptr, "launch_host_kernel(", name,
      "): the stream is being captured, and a graph records operators. Register the kernel with TORCH_LIBRARY_IMPL and "
      "call the operator");
  c10::SmallVector<void*, 8> pointers;
  double bytes = 0;
  at::ScalarType dtype = cost.dtype;
  for (const KernelTensor& argument : tensors) {
    pointers.push_back(host_address(argument.tensor, name));
    if (!argument.tensor.defined()) {
      continue;
    }
    bytes += static_cast<double>(argument.tensor.nbytes());
    dtype = dtype == at::ScalarType::Undefined ? argument.tensor.scalar_type() : dtype;
    if (launch.is_watched()) {
      launch.note_access(*argument.tensor.unsafeGetTensorImpl(), argument.written, name);
    }
  }
  kernel(pointers.data());
  const musaSimCost price{cost.flops, cost.bytes < 0 ? bytes : cost.bytes, cost_dtype(dtype)};
  MUSA_CHECK(launch.finish_kernel(counters_of(name, /*bridged=*/false), price));
}

}  // namespace musa
