#include "backend/bridge/wrap.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <cstring>

#include "backend/bridge/like.h"
#include "backend/runtime/device.h"
#include "backend/storage.h"

namespace musa {

namespace {

constexpr c10::DispatchKeySet kBits(
    {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});

// Reaches what TensorImpl keeps for its subclasses. Copying its metadata is several times cheaper than
// set_sizes_and_strides, which checks the strides and works out contiguity once more.
struct Metadata : c10::TensorImpl {
  static void copy(const c10::TensorImpl* from, c10::TensorImpl* to, c10::Device device) {
    copy_generic_tensor_metadata(from, to);
    to->*(&Metadata::device_opt_) = device;
  }
};

constexpr c10::DispatchKeySet kPlain(c10::DispatchKey::CPU);

// Views that nobody kept, without storage. A fixed array: no destructor runs when a thread ends late.
struct Spare {
  static constexpr int kMost = 8;
  c10::TensorImpl* views[kMost];
  int count = 0;
};
thread_local __attribute__((tls_model("initial-exec"))) Spare spare;

constexpr c10::DispatchKeySet kWrapperKeys(
    {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Python,
     c10::DispatchKey::Functionalize});

[[noreturn]] void refuse_wrapper(c10::TensorImpl* tensor, const char* op) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "The musa kernel of ", op, " was given a wrapper tensor (keys ", tensor->key_set(),
      ") instead of the tensor inside. A transform (vmap, grad, a tensor subclass) has passed it on without "
      "unwrapping; "
      "the op needs a batching rule or a __torch_dispatch__ of its own.");
}

[[noreturn]] void refuse(c10::TensorImpl* tensor, const char* op) {
  if (tensor->key_set().has_any(kWrapperKeys)) {
    refuse_wrapper(tensor, op);
  }
  if (tensor->layout() == c10::kStrided && !tensor->has_storage()) {
    (void)tensor->storage();  // throws in the words of who took the storage away
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op, ": argument of layout ", tensor->layout(),
      " is not supported on musa. Use .to_dense(), or run this op on the CPU.");
}

}  // namespace

c10::intrusive_ptr<c10::TensorImpl> show(c10::TensorImpl* tensor, const char* op) {
  const c10::DispatchKeySet bits = tensor->key_set() & kBits;
  c10::Storage twin;
  if (C10_LIKELY(tensor->has_storage() && !tensor->has_symbolic_sizes_strides())) {
    twin = c10::Storage(twin_of(tensor->unsafe_storage().unsafeGetStorageImpl()));
  } else if (!bits.has(c10::DispatchKey::ZeroTensor)) {
    refuse(tensor, op);
  }
  c10::intrusive_ptr<c10::TensorImpl> shown;
  if (C10_LIKELY(spare.count > 0 && bits.empty())) {
    shown = c10::intrusive_ptr<c10::TensorImpl>::reclaim(spare.views[--spare.count]);
    shown->set_storage_keep_dtype(std::move(twin));
  } else {
    shown = c10::make_intrusive<c10::TensorImpl>(std::move(twin), kPlain | bits, tensor->dtype());
  }
  Metadata::copy(tensor, shown.get(), c10::Device(c10::kCPU));
  return shown;
}

void check_memory(c10::TensorImpl* tensor, const c10::TensorImpl& shown, const char* op) {
  if (C10_LIKELY(shown.unsafe_storage().data() != nullptr || tensor->numel() == 0)) {
    return;
  }
  if (tensor->key_set().has(c10::DispatchKey::ZeroTensor)) {
    return;
  }
  if (tensor->unsafe_storage().nbytes() > 0) {  // as a subclass makes it, or a view of such a tensor
    refuse_wrapper(tensor, op);
  }
  if (tensor->layout() == c10::kStrided && !tensor->has_storage()) {
    (void)tensor->storage();  // throws in the words of who took the storage away
  }
  TORCH_CHECK(
      false, op, ": a tensor of ", tensor->numel(),
      " elements has no memory: its storage was resized to 0 bytes. Resize "
      "the storage back before the tensor is used.");
}

void recycle(c10::intrusive_ptr<c10::TensorImpl>&& shown) noexcept {
  if (shown.unique() && shown.weak_use_count() == 1 && shown->key_set() == kPlain && shown->is_inference() &&
      shown->autograd_meta() == nullptr && spare.count < Spare::kMost) {
    shown->set_storage_keep_dtype(c10::Storage());
    spare.views[spare.count++] = shown.release();
  }
}

c10::Storage take_storage(const c10::Storage& cpu, c10::Device device, OpCounters* counters) {
  c10::StorageImpl* impl = cpu.unsafeGetStorageImpl();
  const void* data = impl->data();
  if (C10_UNLIKELY(data != nullptr && !musart::is_alias_pointer(data))) {
    TORCH_CHECK(
        counters == nullptr || !musaSimSettingFlag("TORCH_MUSA_SIM_STRICT"), counters->name,
        " made its result in the host's memory, so that it had to be copied to the card; TORCH_MUSA_SIM_STRICT=1 "
        "refuses that. Please report the operator; without the variable the copy is only counted.");
    auto moved = c10::make_intrusive<MusaStorage>(impl->nbytes(), device);
    std::memcpy(moved->twin()->mutable_data(), data, impl->nbytes());
    if (counters != nullptr) {
      counters->copies.fetch_add(1, std::memory_order_relaxed);
    }
    return c10::Storage(std::move(moved));
  }
  return c10::Storage(
      c10::make_intrusive<MusaStorage>(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl), device));
}

c10::intrusive_ptr<c10::TensorImpl> like(
    c10::TensorImpl* tensor, c10::Storage storage, c10::DispatchKey key, c10::Device device) {
  auto made = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key) | (tensor->key_set() & kBits), tensor->dtype());
  Metadata::copy(tensor, made.get(), device);
  return made;
}

c10::intrusive_ptr<c10::TensorImpl> take_on(c10::TensorImpl* cpu, c10::Storage storage) {
  const c10::DispatchKeySet bits = cpu->key_set() & kBits;
  const c10::Device device = storage.device();
  auto taken = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1) | bits, cpu->dtype());
  Metadata::copy(cpu, taken.get(), device);
  return taken;
}

c10::intrusive_ptr<c10::TensorImpl> take(c10::TensorImpl* cpu, c10::Device device, OpCounters* counters) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      cpu->has_storage() && cpu->layout() == c10::kStrided, "A result of layout ", cpu->layout(),
      " is not supported on musa. Run this op on the CPU.");
  return take_on(cpu, take_storage(cpu->storage(), device, counters));
}

}  // namespace musa
