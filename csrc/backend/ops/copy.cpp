// Copies: between host and card, between cards, within a card; with dtype, layout, conj and neg resolved on the way.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/copy.h>
#include <torch/library.h>

#include "backend/bridge/accesses.h"
#include "backend/bridge/host_view.h"
#include "backend/ops/deferred_copy.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/host_allocator.h"
#include "backend/runtime/stream.h"
#include "backend/runtime/sync_debug.h"

namespace musa {

namespace {

int card_of(const at::Tensor& tensor) { return tensor.device().type() == kMusa ? tensor.device().index() : -1; }

constexpr const char* kOp = "aten::_copy_from";

// A kernel: read and written at the memory's rate.
void copy_on_card(const at::Tensor& self, const at::Tensor& dst) {
  CardScope scope(self.device(), kOp);
  const at::Tensor source = scope.view(self);
  scope.written(dst).copy_(source);
}

// On the source's stream; it waits for what the target's card was given, and the target's stream waits for the copy.
void copy_between_cards(const at::Tensor& self, const at::Tensor& dst) {
  const musaStream_t source_stream = current_native_stream(self.device().index());
  const musaStream_t target_stream = current_native_stream(dst.device().index());
  MUSA_CHECK(musaSimStreamWaitStream(source_stream, target_stream));
  {
    const CopyRoute route{dst.device().index(), self.device().index(), /*pinned=*/false};
    CardScope scope(self.device(), kOp, route, dst.nbytes());
    const at::Tensor source = scope.view(self);
    scope.written(dst).copy_(source);
  }
  MUSA_CHECK(musaSimStreamWaitStream(target_stream, source_stream));
}

// Strict mode: page-locked memory is touched by the stream, not by the caller.
void copy_pinned_checked(
    const at::Tensor& target, const at::Tensor& source, bool to_host, musaStream_t stream, bool& asynchronous) {
  const MemoryRange host = memory_of(*(to_host ? target : source).unsafeGetTensorImpl());
  MUSA_CHECK(musaSimAccess(stream, host.address, host.bytes, to_host ? 1 : 0, kOp));
  asynchronous = asynchronous && can_defer(target, source);
  if (asynchronous) {
    copy_deferred(target, source, to_host, stream, kOp);
  } else {
    target.copy_(source);
  }
}

void copy_across_host(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  const bool to_host = dst.is_cpu();
  const c10::Device card = to_host ? self.device() : dst.device();
  const at::Tensor& host_side = to_host ? dst : self;
  const bool pinned = is_pinned(host_side.storage().data());
  const musaStream_t stream = current_native_stream(card.index());
  bool asynchronous = non_blocking && pinned;
  if (!non_blocking) {
    note_synchronization();
  }
  {
    CardScope scope(card, kOp, CopyRoute{card_of(dst), card_of(self), pinned}, dst.nbytes());
    const at::Tensor source = scope.view(self);
    const at::Tensor target = scope.written(dst);
    if (pinned && watches_races()) {
      copy_pinned_checked(target, source, to_host, stream, asynchronous);
    } else {
      target.copy_(source);
    }
    if (asynchronous) {
      record_pinned_use(host_side.storage().data_ptr(), current_stream(card.index()));
    }
  }
  // A non-blocking copy from pageable memory returns when the bytes have left it, which the launch has waited for.
  if (!asynchronous && (to_host || !non_blocking)) {
    MUSA_CHECK(musaStreamSynchronize(stream));
  }
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  TORCH_CHECK(
      card_of(self) >= 0 || self.is_cpu(), "Can't copy from ", self.device(), " to ", dst.device(),
      "; copy through the CPU");
  TORCH_CHECK(
      card_of(dst) >= 0 || dst.is_cpu(), "Can't copy from ", self.device(), " to ", dst.device(),
      "; copy through the CPU");
  if (self.is_cpu() || dst.is_cpu()) {
    copy_across_host(self, dst, non_blocking);
  } else if (self.device() == dst.device()) {
    copy_on_card(self, dst);
  } else {
    copy_between_cards(self, dst);
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
