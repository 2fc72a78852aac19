#include "backend/bridge/host_view.h"

#include <c10/core/TensorImpl.h>

#include <exception>
#include <string>
#include <unordered_map>

#include "backend/bridge/accesses.h"
#include "backend/bridge/counters.h"
#include "backend/bridge/wrap.h"
#include "backend/runtime/device.h"

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

Launch begin(c10::Device device) {
  Launch launch;
  launch.begin(device.index());
  return launch;
}

}  // namespace

CardScope::CardScope(c10::Device device, const char* op) : CardScope(device, op, nullptr) {}

CardScope::CardScope(c10::Device device, const char* op, const CopyRoute& route, size_t bytes)
    : CardScope(device, op, &route) {
  route_ = route;
  cost_.bytes = static_cast<double>(bytes);
}

CardScope::CardScope(c10::Device device, const char* op, const CopyRoute* route)
    : device_(device),
      counters_(&counters_by_literal(op)),
      exceptions_(std::uncaught_exceptions()),
      launch_(begin(device)),
      memory_(device.index(), launch_.stream()) {
  if (!launch_.is_watched()) {
    return;
  }
  if (route != nullptr) {
    launch_.check_copy(op, *route);
  } else {
    launch_.check(op);
  }
}

CardScope::~CardScope() {
  if (!launches_ || std::uncaught_exceptions() > exceptions_) {
    return;
  }
  // A stream that exists can be launched on. What a watcher objects to can't be thrown from here: races and dead cards
  // are reported by the next call.
  if (route_) {
    (void)launch_.finish_copy(*counters_, *route_, static_cast<size_t>(cost_.bytes));
  } else {
    (void)launch_.finish_kernel(*counters_, cost_);
  }
  if (synchronizes_) {
    (void)musaStreamSynchronize(launch_.stream());
  }
}

at::Tensor CardScope::view(const at::Tensor& tensor) {
  at::Tensor shown = host_view(tensor);
  if (launch_.is_watched() && shown.defined()) {
    note_access(tensor, shown, /*written=*/false);
  }
  if (shown.defined() && !route_) {
    cost_.bytes += static_cast<double>(shown.numel()) * static_cast<double>(shown.element_size());
    if (!dtype_known_) {
      cost_.dtype = cost_dtype(shown.scalar_type());
      dtype_known_ = true;
    }
  }
  return shown;
}

at::Tensor CardScope::written(const at::Tensor& tensor) {
  if (launch_.is_watched() && tensor.defined()) {
    launch_.note_access(*tensor.unsafeGetTensorImpl(), /*written=*/true, counters_->name.c_str());
  }
  return view(tensor);
}

void CardScope::note_access(const at::Tensor& tensor, const at::Tensor& shown, bool written) {
  const char* op = counters_->name.c_str();
  if (watches_races() && !route_ && tensor.is_cpu()) {
    check_host_tensor(tensor, op);
  }
  launch_.note_access(*shown.unsafeGetTensorImpl(), written, op);
}

std::optional<at::Tensor> CardScope::view(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? std::optional<at::Tensor>(view(*tensor)) : std::nullopt;
}

at::Tensor CardScope::result(const at::Tensor& cpu) {
  if (!cpu.defined()) {
    return cpu;
  }
  if (!route_) {
    cost_.bytes += static_cast<double>(cpu.numel()) * static_cast<double>(cpu.element_size());
  }
  if (launch_.is_watched()) {
    launch_.note_access(*cpu.unsafeGetTensorImpl(), /*written=*/true, counters_->name.c_str());
  }
  return state_.outside([&] { return at::Tensor(take(cpu.unsafeGetTensorImpl(), device_, counters_)); });
}

void CardScope::set_cost(double flops, musaSimDtype dtype) {
  cost_.flops = flops;
  cost_.dtype = dtype;
  dtype_known_ = true;
}

}  // namespace musa
