// The two conversions of the bridge: a musa tensor shown as a CPU tensor, a CPU result taken back.
#pragma once

#include <c10/core/TensorImpl.h>

#include "backend/bridge/counters.h"

namespace musa {

/// CPU TensorImpl over the alias memory of `tensor` (on musa). Throws NotImplementedError, naming `op`, for a wrapper
/// tensor or a layout without strided storage.
c10::intrusive_ptr<c10::TensorImpl> show(c10::TensorImpl* tensor, const char* op);

/// Throws when `tensor` has elements and no memory, which a kernel would read from address 0: a wrapper tensor that
/// reached it without being unwrapped, or a storage that was resized to nothing.
void check_memory(c10::TensorImpl* tensor, const c10::TensorImpl& shown, const char* op);

/// Gives a view made by `show` back for the next call of this thread, if nobody kept it: most of the cost of a view is
/// making and destroying the TensorImpl.
void recycle(c10::intrusive_ptr<c10::TensorImpl>&& shown) noexcept;

/// musa TensorImpl over the memory of a CPU result. Memory that isn't on the card is copied there and counted in
/// `counters` (may be null).
c10::intrusive_ptr<c10::TensorImpl> take(c10::TensorImpl* cpu, c10::Device device, OpCounters* counters);

/// As `take`, over a storage that is already known.
c10::intrusive_ptr<c10::TensorImpl> take_on(c10::TensorImpl* cpu, c10::Storage storage);

/// The musa storage over the memory of a CPU result's storage.
c10::Storage take_storage(const c10::Storage& cpu, c10::Device device, OpCounters* counters);

}  // namespace musa
