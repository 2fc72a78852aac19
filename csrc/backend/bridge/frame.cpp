#include "backend/bridge/frame.h"

#include <ATen/ops/clone.h>

#include "backend/bridge/accesses.h"
#include "backend/bridge/strict.h"
#include "backend/bridge/tf32.h"
#include "backend/bridge/wrap.h"
#include "backend/runtime/check.h"
#include "backend/runtime/device.h"
#include "backend/runtime/sync_debug.h"

namespace musa {

namespace {

// A number that the host asks for: CUDA copies it there.
bool reads_back(const Plan& plan) { return plan.has(kSynchronizes) && plan.method == "_local_scalar_dense"; }

constexpr const char* kIndexRule = "indices should be either on cpu or on the same device as the indexed tensor ";

}  // namespace

Frame::~Frame() {
  for (Shown& argument : shown_) {
    if (!argument.temporary) {
      recycle(std::move(argument.shown));
    }
  }
}

void Frame::refuse_devices(c10::Device one, c10::Device other, size_t index) const {
  TORCH_CHECK(
      false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ", other,
      "! (when checking argument for argument ", plan_.arg_names[index], " in method wrapper_MUSA_", plan_.method, ")");
}

void Frame::note_card(c10::Device device, const ArgPlan& argument) {
  if (C10_LIKELY(!found_)) {
    device_ = device;
    found_ = true;
  } else if (C10_UNLIKELY(device != device_)) {
    TORCH_CHECK(!is_index(argument), kIndexRule, "(", device_, ")");
    refuse_devices(device_, device, argument.index);
  }
}

void Frame::note_foreign(const at::Tensor& tensor, const ArgPlan& argument) {
  if (tensor.is_cpu() && is_index(argument)) {
    return;
  }
  if (watches_races() && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    check_host_tensor(tensor, plan_.name.c_str());
  }
  const bool harmless = tensor.dim() == 0 && tensor.is_cpu() && !argument.written;
  if (foreign_ < 0 &&
      !(harmless && (tensor.unsafeGetTensorImpl()->is_wrapped_number() || !plan_.has(kRefusesCpuScalars)))) {
    foreign_ = argument.index;
    foreign_device_ = tensor.device();
  }
}

void Frame::check_foreign() const {
  TORCH_CHECK(foreign_ != 0 || !plan_.has(kIndexes), kIndexRule, "(", foreign_device_, ")");
  if (foreign_device_.is_cpu() && plan_.has(kTakesCpuTensors)) {
    return;
  }
  refuse_devices(device_, foreign_device_, static_cast<size_t>(foreign_));
}

void Frame::check_devices(c10::DeviceIndex device_argument) {
  if (C10_UNLIKELY(!found_)) {
    ensure_initialized();
    device_ = c10::Device(kMusa, resolve_device(device_argument));
  }
  if (C10_UNLIKELY(foreign_ >= 0)) {
    check_foreign();
  }
  launch_.begin(device_.index());
  if (launch_.is_watched() && !plan_.has(kNoLaunch)) {
    if (reads_back(plan_)) {
      launch_.check_copy(plan_.name.c_str(), {-1, device_.index(), /*pinned=*/false});
    } else {
      launch_.check(plan_.name.c_str());
    }
    for (const Shown& argument : shown_) {
      launch_.note_access(*argument.original.unsafeGetTensorImpl(), argument.written, plan_.name.c_str());
    }
  }
}

const c10::intrusive_ptr<c10::TensorImpl>& Frame::show_once(at::Tensor tensor, const ArgPlan& argument) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  note_card(impl->device(), argument);
  for (Shown& known : shown_) {
    if (known.original.unsafeGetTensorImpl() == impl) {
      known.written |= argument.written;
      return known.shown;
    }
  }
  c10::intrusive_ptr<c10::TensorImpl> shown = show(impl, plan_.method.c_str());
  if (!plan_.has(kNoLaunch)) {
    check_memory(impl, *shown, plan_.method.c_str());
  }
  const double bytes = static_cast<double>(impl->numel()) * static_cast<double>(impl->itemsize());
  cost_.bytes += argument.read_and_written ? 2 * bytes : bytes;
  const c10::ScalarType type = c10::typeMetaToScalarType(impl->dtype());
  if (shown_.empty()) {
    cost_.dtype = cost_dtype(type);
    check_accepted(plan_.accepted_dtypes, type, plan_.method);
  }
  bool temporary = false;
  if (C10_UNLIKELY(plan_.upcasts)) {
    const c10::ScalarType compute = compute_dtype(plan_.method, type);
    if (compute != type) {
      AllocateOnCard memory(device_.index(), current_native_stream(device_.index()));
      shown = at::Tensor(shown).to(compute).unsafeReleaseIntrusivePtr();
      upcast_ = temporary = true;
      upcast_from_ = type;
      upcast_to_ = compute;
    }
  }
  c10::StorageImpl* twin = shown->has_storage() ? shown->unsafe_storage().unsafeGetStorageImpl() : nullptr;
  shown_.push_back({std::move(tensor), std::move(shown), twin, argument.written, temporary});
  return shown_.back().shown;
}

at::Tensor Frame::show_tensor(const at::Tensor& tensor, const ArgPlan& argument) {
  if (C10_LIKELY(tensor.defined() && tensor.device().type() == kMusa)) {
    return at::Tensor(show_once(tensor, argument));
  }
  if (tensor.defined()) {
    note_foreign(tensor, argument);
  }
  return tensor;
}

Shown* Frame::find_shown(const c10::TensorImpl* impl) {
  for (Shown& argument : shown_) {
    if (argument.shown.get() == impl) {
      return &argument;
    }
  }
  return nullptr;
}

void Frame::write_back(Shown& argument) {
  c10::TensorImpl* original = argument.original.unsafeGetTensorImpl();
  c10::TensorImpl* shown = argument.shown.get();
  if (!shown->has_storage()) {
    return;
  }
  c10::StorageImpl* storage = shown->unsafe_storage().unsafeGetStorageImpl();
  c10::StorageImpl* before = original->unsafe_storage().unsafeGetStorageImpl();
  const void* memory = storage->data() == nullptr ? nullptr : musart::to_device(storage->data());
  if (C10_UNLIKELY(memory != before->data() || storage->nbytes() != before->nbytes())) {
    MusaStorage* ours = as_musa_storage(before);
    if (ours != nullptr && storage == argument.twin && !argument.temporary) {
      ours->adopt_twin();
    } else {
      original->set_storage_keep_dtype(take_storage(shown->storage(), device_, plan_.counters));
    }
    if (launch_.is_watched() && !plan_.has(kNoLaunch)) {
      launch_.note_access(*shown, /*written=*/true, plan_.name.c_str());
    }
  }
  if (C10_UNLIKELY(
          shown->sizes() != original->sizes() || shown->strides() != original->strides() ||
          shown->storage_offset() != original->storage_offset())) {
    cost_.bytes += static_cast<double>(shown->numel() - original->numel()) * static_cast<double>(shown->itemsize());
    original->set_sizes_and_strides(shown->sizes(), shown->strides(), shown->storage_offset());
  }
}

void Frame::write_back() {
  if (plan_.writes) {
    for (Shown& argument : shown_) {
      if (argument.written) {
        write_back(argument);
      }
    }
  }
}

at::Tensor Frame::take_tensor(const at::Tensor& result, bool stays_on_cpu) {
  if (!result.defined()) {
    return result;
  }
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  if (const Shown* argument = find_shown(impl)) {
    return argument->original;
  }
  if (C10_UNLIKELY(stays_on_cpu)) {
    return at::clone(result);  // out of the card's memory
  }
  cost_.bytes += static_cast<double>(impl->numel()) * static_cast<double>(impl->itemsize());
  if (C10_LIKELY(impl->has_storage())) {
    const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    for (const Shown& argument : shown_) {
      if (argument.twin == storage && !argument.temporary) {
        return at::Tensor(take_on(impl, argument.original.storage()));
      }
    }
    if (launch_.is_watched() && !plan_.has(kNoLaunch)) {
      launch_.note_access(*impl, /*written=*/true, plan_.name.c_str());
    }
    for (const auto& [taken, card] : fresh_) {
      if (taken == storage) {
        return at::Tensor(take_on(impl, card));
      }
    }
    if (plan_.return_count > 1) {
      c10::Storage card = take_storage(impl->storage(), device_, plan_.counters);
      fresh_.emplace_back(storage, card);
      return at::Tensor(take_on(impl, std::move(card)));
    }
  }
  return at::Tensor(take(impl, device_, plan_.counters));
}

void Frame::launch() {
  if (plan_.has(kNoLaunch)) {
    return;
  }
  if (C10_UNLIKELY(fixed_bytes_ >= 0)) {
    cost_.bytes = fixed_bytes_;
  }
  cost_.dtype = product_class(plan_.facts.flops, cost_.flops, cost_.dtype);
  const musaError_t status = C10_UNLIKELY(reads_back(plan_))
      ? launch_.finish_copy(*plan_.counters, {-1, device_.index(), /*pinned=*/false}, static_cast<size_t>(cost_.bytes))
      : launch_.finish_kernel(*plan_.counters, cost_);
  if (C10_UNLIKELY(status != musaSuccess)) {
    throw_runtime_error(status, "musaLaunchKernel");
  }
  if (C10_UNLIKELY(plan_.has(kSynchronizes) || synchronizes_)) {
    note_synchronization();
    MUSA_CHECK(musaStreamSynchronize(stream()));
  }
}

}  // namespace musa
