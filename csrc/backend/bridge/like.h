// A tensor of the shape of another one, over other memory.
#pragma once

#include <c10/core/TensorImpl.h>

namespace musa {

/// TensorImpl of the sizes, strides and conj / neg bits of `tensor` over another storage, with the backend key and
/// device of a CPU, musa or meta tensor.
c10::intrusive_ptr<c10::TensorImpl> like(
    c10::TensorImpl* tensor, c10::Storage storage, c10::DispatchKey key, c10::Device device);

}  // namespace musa
