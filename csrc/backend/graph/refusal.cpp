#include "backend/graph/refusal.h"

#include <c10/util/Exception.h>

#include "backend/runtime/stream.h"
#include "musart/musart_capture.h"

namespace musa::graph {

namespace {

[[noreturn]] void throw_captured(musaError_t error, const std::string& what, const std::string& why) {
  throw c10::AcceleratorError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, static_cast<int32_t>(error),
      std::string("MUSA error: ") + musaGetErrorString(error) + " (" + musaGetErrorName(error) + ") in " + what + ": " +
          why + ".");
}

}  // namespace

void refuse(musaStream_t stream, const std::string& what, const char* why) {
  musaSimCaptureInvalidate(stream);
  throw_captured(musaErrorStreamCaptureUnsupported, what, why);
}

void refuse_if_captured(c10::DeviceIndex card, const std::string& what, const char* why) {
  if (musaSimCaptureCount() != 0) {
    const musaStream_t stream = current_native_stream(card);
    if (musaSimCaptureOwner(stream) != nullptr) {
      refuse(stream, what, why);
    }
  }
}

void refuse_unpinned(musaStream_t stream) {
  musaSimCaptureInvalidate(stream);
  TORCH_CHECK(
      false,
      "Cannot copy between CPU and MUSA tensors during MUSA graph capture unless the CPU tensor is pinned. Please use "
      "tensor.pin_memory() or allocate the tensor with pin_memory=True.");
}

void refuse_outside(musaStream_t other, const void* owner, musaStream_t stream, const std::string& what) {
  if (musaSimCaptureOwner(other) != owner) {
    musaSimCaptureInvalidate(stream);
    throw_captured(
        musaErrorStreamCaptureIsolation, what,
        "the current stream of the other card takes no part in the capture; let it wait for an event of the capture");
  }
}

}  // namespace musa::graph
