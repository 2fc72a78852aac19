// Copies: between host and card, between cards, within a card; with dtype, layout, conj and neg resolved on the way.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/copy.h>
#include <torch/library.h>

#include "backend/bridge/host_view.h"
#include "backend/runtime/device.h"
#include "backend/runtime/host_allocator.h"
#include "backend/runtime/stream.h"

namespace musa {

namespace {

int card_of(const at::Tensor& tensor) { return tensor.device().type() == kMusa ? tensor.device().index() : -1; }

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  TORCH_CHECK(
      card_of(self) >= 0 || self.is_cpu(), "Can't copy from ", self.device(), " to ", dst.device(),
      "; copy through the CPU");
  TORCH_CHECK(
      card_of(dst) >= 0 || dst.is_cpu(), "Can't copy from ", self.device(), " to ", dst.device(),
      "; copy through the CPU");
  const int from = card_of(self);
  const int to = card_of(dst);
  const c10::Device device = from >= 0 ? self.device() : dst.device();
  constexpr const char* kOp = "aten::_copy_from";
  if (from == to) {  // a kernel: read and written at the memory's rate
    CardScope scope(device, kOp);
    const at::Tensor source = scope.view(self);
    scope.written(dst).copy_(source);
    return dst;
  }
  const bool crosses_host = from < 0 || to < 0;
  const at::Tensor& host_side = from < 0 ? self : dst;
  const bool pinned = crosses_host && is_pinned(host_side.storage().data());
  CardScope scope(device, kOp, CopyRoute{to, from, pinned}, dst.nbytes());
  const at::Tensor source = scope.view(self);
  scope.written(dst).copy_(source);
  if (crosses_host && !(non_blocking && pinned)) {
    scope.set_synchronizes();
  } else if (pinned) {
    record_pinned_use(host_side.storage().data_ptr(), current_stream(device.index()));
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (self.sizes() != dst.sizes()) {
    dst.resize_(self.sizes());
  }
  return copy_from(self, dst, /*non_blocking=*/false);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

// The boxed fallbacks of these keys would materialise the argument with a clone, which copies, without end. The copy
// kernel resolves the bits itself.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace musa
