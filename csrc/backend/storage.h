// Storage of the musa device: a device address, and the CPU twin through which kernels reach the same bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace musa {

/// Keeps one CPU StorageImpl over the alias of its memory. The twin owns the block: whoever still holds it (a CPU
/// kernel that kept a tensor, the musa storage itself) keeps the memory.
class MusaStorage final : public c10::StorageImpl {
 public:
  /// A fresh block of `nbytes` on `device` for its current stream.
  MusaStorage(size_t nbytes, c10::Device device, bool resizable);
  /// The musa face of a CPU storage that lies in card memory.
  MusaStorage(c10::intrusive_ptr<c10::StorageImpl> twin, c10::Device device);
  /// Wraps memory that somebody else owns (the generic storage factory).
  MusaStorage(size_t nbytes, c10::DataPtr data, c10::Allocator* allocator, bool resizable);

  /// The twin, brought up to date when the data pointer or the size was replaced from outside.
  c10::StorageImpl* twin();
  /// Takes over the twin's memory after a CPU kernel has resized it.
  void adopt_twin();
  void release_resources() override;

 private:
  c10::intrusive_ptr<c10::StorageImpl> twin_;
};

/// Twin of any storage on musa; a plain StorageImpl (DLPack, from_blob) gets one that lives as long as the result.
c10::intrusive_ptr<c10::StorageImpl> twin_of(const c10::Storage& storage);

/// Registers the storage factory of PrivateUse1 and the switch in front of torch's CPU allocator.
void register_storage();

}  // namespace musa
