#include "backend/graph/node_tensors.h"

#include <ATen/ops/clone.h>

#include <sstream>

#include "backend/bridge/like.h"
#include "backend/bridge/wrap.h"
#include "backend/graph/interception.h"
#include "backend/graph/refusal.h"
#include "backend/runtime/stream.h"
#include "backend/storage.h"

namespace musa::graph {

namespace {

c10::intrusive_ptr<c10::StorageImpl> borrow(const c10::Storage& storage) {
  void* alias = storage.data() == nullptr ? nullptr : musart::to_alias(storage.data());
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(storage.nbytes()),
      c10::DataPtr(alias, c10::Device(c10::kCPU)), nullptr, /*resizable=*/false);
}

// A number on the CPU is read when the kernel is launched: the graph keeps the value it has now.
at::Tensor number(const at::Tensor& tensor) {
  const WithoutInterception plainly(kCaptureKey);
  at::Tensor copy = at::clone(tensor);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

}  // namespace

bool is_card(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kMusa; }

at::Tensor NodeTensors::view(const at::Tensor& tensor) {
  if (!is_card(tensor)) {
    return number(tensor);
  }
  for (const auto& [original, made] : tensors_) {
    if (original.is_same(tensor)) {
      return made;
    }
  }
  const c10::Device device = key_ == c10::DispatchKey::CPU ? c10::Device(c10::kCPU) : tensor.device();
  at::Tensor made(like(tensor.unsafeGetTensorImpl(), storage(tensor), key_, device));
  tensors_.emplace_back(tensor, made);
  return made;
}

c10::Storage NodeTensors::storage(const at::Tensor& tensor) {
  c10::Storage& made = storages_[tensor.storage().unsafeGetStorageImpl()];
  if (!made) {
    c10::intrusive_ptr<c10::StorageImpl> borrowed = borrow(tensor.storage());
    if (key_ == c10::DispatchKey::CPU) {
      made = c10::Storage(std::move(borrowed));
    } else {
      made = c10::Storage(c10::make_intrusive<MusaStorage>(std::move(borrowed), tensor.device()));
    }
  }
  return made;
}

void resize_written(const Rehearsal& rehearsal) {
  const WithoutInterception plainly(kCaptureKey);
  for (const Rehearsal::StandIn& pair : rehearsal.stand_ins()) {
    if (pair.tensor.sizes() != pair.original.sizes()) {
      pair.original.resize_(pair.tensor.sizes());
    }
    if (pair.tensor.strides() != pair.original.strides()) {
      pair.original.unsafeGetTensorImpl()->set_sizes_and_strides(
          pair.tensor.sizes(), pair.tensor.strides(), pair.original.storage_offset());
    }
  }
}

c10::IValue Results::make(const c10::IValue& shown, size_t index) {
  if (shown.isTensor()) {
    return make(shown.toTensor(), index, std::nullopt);
  }
  if (shown.isTensorList()) {
    c10::List<at::Tensor> list;
    size_t element = 0;
    for (const at::Tensor& tensor : shown.toTensorVector()) {
      list.push_back(make(tensor, index, element++));
    }
    return list;
  }
  return shown;
}

at::Tensor Results::make(const at::Tensor& shown, size_t index, std::optional<size_t> element) {
  if (!shown.defined()) {
    return shown;
  }
  if (at::Tensor argument = rehearsal_.original(shown); argument.defined()) {
    return argument;
  }
  if (!shown.has_storage() || shown.layout() != c10::kStrided) {
    refuse(
        current_native_stream(card_.index()), node_.name,
        "its result isn't a strided tensor, and the host would wait for its size");
  }
  node_.cost.bytes += static_cast<double>(shown.nbytes());
  if (c10::Storage storage = rehearsal_.original(shown.storage())) {
    return at::Tensor(take_on(shown.unsafeGetTensorImpl(), std::move(storage)));
  }
  c10::Storage& storage = fresh_[shown.storage().unsafeGetStorageImpl()];
  if (!storage) {
    storage = c10::Storage(c10::make_intrusive<MusaStorage>(shown.storage().nbytes(), card_));
    if (storage.data() != nullptr) {
      node_.blocks.push_back({musart::to_alias(storage.data()), storage.nbytes()});
    }
  }
  at::Tensor made(take_on(shown.unsafeGetTensorImpl(), storage));
  node_.results.push_back({index, element, tensors_.view(made)});
  node_.accesses.push_back({node_.results.back().promised, true});
  std::ostringstream label;
  label << made.scalar_type() << made.sizes();
  node_.label += (node_.label.empty() ? "" : ", ") + label.str();
  return made;
}

}  // namespace musa::graph
