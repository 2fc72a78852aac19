// Storage of the musa device: a device address, and the CPU twin through which kernels reach the same bytes.
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include "musart/musart_sim.h"

namespace musa {

/// Keeps one CPU StorageImpl over the alias of its memory. The twin owns the block: whoever still holds it (a CPU
/// kernel that kept a tensor, the musa storage itself) keeps the memory.
class MusaStorage final : public c10::StorageImpl {
 public:
  /// A fresh block of `nbytes` on `device` for its current stream.
  MusaStorage(size_t nbytes, c10::Device device);
  /// The musa face of a CPU storage that lies in the memory of `device`.
  MusaStorage(c10::intrusive_ptr<c10::StorageImpl> twin, c10::Device device);

  /// The twin; nullptr when the data pointer was replaced from outside (use twin_of).
  c10::StorageImpl* twin() const;
  /// Takes over the twin's memory after a CPU kernel has resized it.
  void adopt_twin();
  void release_resources() override;

 private:
  c10::intrusive_ptr<c10::StorageImpl> twin_;
};

/// The storage as ours; nullptr for a plain StorageImpl (DLPack, from_blob).
MusaStorage* as_musa_storage(c10::StorageImpl* storage);

/// Twin of any storage on musa; a plain StorageImpl gets one that keeps it alive and lives as long as the result.
c10::intrusive_ptr<c10::StorageImpl> twin_of(c10::StorageImpl* storage);

/// Changes the size in place and keeps the common bytes; 0 gives the memory back.
void resize_storage(const c10::Storage& storage, size_t nbytes);

/// While it lives, what the calling thread allocates through torch's CPU allocator comes from a card.
class AllocateOnCard {
 public:
  AllocateOnCard(c10::DeviceIndex device, musaStream_t stream);
  ~AllocateOnCard();
  AllocateOnCard(const AllocateOnCard&) = delete;
  AllocateOnCard& operator=(const AllocateOnCard&) = delete;

 private:
  musaStream_t outer_stream_;
  c10::DeviceIndex outer_device_;
};

/// Installs the storage factory of PrivateUse1 and the switch in front of torch's CPU allocator. Idempotent.
void register_storage();

}  // namespace musa
