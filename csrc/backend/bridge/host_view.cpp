#include "backend/bridge/host_view.h"

#include <c10/core/TensorImpl.h>

#include <exception>
#include <string>
#include <unordered_map>

#include "backend/bridge/counters.h"
#include "backend/bridge/wrap.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/stream.h"
#include "backend/runtime/threads.h"

namespace musa {

at::Tensor host_view(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kMusa) {
    return tensor;
  }
  constexpr const char* kOp = "a native operator";
  auto shown = show(tensor.unsafeGetTensorImpl(), kOp);
  check_memory(tensor.unsafeGetTensorImpl(), *shown, kOp);
  return at::Tensor(std::move(shown));
}

at::Tensor card_tensor(const at::Tensor& cpu, c10::Device device) {
  return cpu.defined() ? at::Tensor(take(cpu.unsafeGetTensorImpl(), device, nullptr)) : cpu;
}

namespace {

OpCounters& counters_by_literal(const char* op) {
  thread_local std::unordered_map<const char*, OpCounters*> known;  // keyed by address: a literal has one
  OpCounters*& found = known[op];
  if (found == nullptr) {
    found = &counters_of(op, /*bridged=*/false);
  }
  return *found;
}

musaStream_t prepare(c10::Device device) {
  ensure_initialized();
  sync_thread_count();
  return current_native_stream(device.index());
}

}  // namespace

CardScope::CardScope(c10::Device device, const char* op)
    : device_(device),
      counters_(&counters_by_literal(op)),
      exceptions_(std::uncaught_exceptions()),
      stream_(prepare(device)),
      memory_(device.index(), stream_) {}

CardScope::~CardScope() {
  if (launch_ == Launch::kNone || std::uncaught_exceptions() > exceptions_) {
    return;
  }
  musaSimSpan span{};
  // A stream that exists can be launched on; an error here could only be a fork, which `prepare` has refused.
  if (launch_ == Launch::kCopy) {
    (void)musaSimLaunchCopy(
        stream_, copy_to_, copy_from_, static_cast<size_t>(cost_.bytes), copy_pinned_ ? 1 : 0, &span);
  } else {
    (void)musaSimLaunch(stream_, &cost_, &span);
  }
  counters_->add(cost_.bytes, span);
  if (synchronizes_) {
    (void)musaStreamSynchronize(stream_);
  }
}

at::Tensor CardScope::view(const at::Tensor& tensor) {
  at::Tensor shown = host_view(tensor);
  if (shown.defined() && launch_ == Launch::kKernel) {
    cost_.bytes += static_cast<double>(shown.numel()) * static_cast<double>(shown.element_size());
    if (!dtype_known_) {
      cost_.dtype = cost_dtype(shown.scalar_type());
      dtype_known_ = true;
    }
  }
  return shown;
}

std::optional<at::Tensor> CardScope::view(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? std::optional<at::Tensor>(view(*tensor)) : std::nullopt;
}

at::Tensor CardScope::result(const at::Tensor& cpu) {
  if (!cpu.defined()) {
    return cpu;
  }
  if (launch_ == Launch::kKernel) {
    cost_.bytes += static_cast<double>(cpu.numel()) * static_cast<double>(cpu.element_size());
  }
  return state_.outside([&] { return at::Tensor(take(cpu.unsafeGetTensorImpl(), device_, counters_)); });
}

void CardScope::set_cost(double flops, musaSimDtype dtype) {
  cost_.flops = flops;
  cost_.dtype = dtype;
  dtype_known_ = true;
}

void CardScope::set_copy(int to_device, int from_device, size_t bytes, bool pinned) {
  launch_ = Launch::kCopy;
  cost_.bytes = static_cast<double>(bytes);
  copy_to_ = to_device;
  copy_from_ = from_device;
  copy_pinned_ = pinned;
}

}  // namespace musa
