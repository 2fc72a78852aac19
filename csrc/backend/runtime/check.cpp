#include "backend/runtime/check.h"

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "musart/musart_faults.h"
#include "musart/musart_sim.h"

namespace musa {

namespace {

std::string_view function_name(std::string_view call) { return call.substr(0, call.find('(')); }

std::string where() {
  int device = 0;
  return musaSimIsInitialized() && musaGetDevice(&device) == musaSuccess ? " on card " + std::to_string(device) : "";
}

const char* what_to_do(musaError_t status) {
  switch (status) {
    case musaErrorNoDevice:
      return " MUSA_VISIBLE_DEVICES or TORCH_MUSA_SIM_CARDS leaves no card visible.";
    case musaErrorInvalidDevice:
      return " Use an index below torch.musa.device_count().";
    case musaErrorInvalidResourceHandle:
      return " A stream or event was destroyed, or belongs to another card.";
    case musaErrorMemoryAllocation:
      return " Free tensors, call torch.musa.empty_cache(), or simulate a larger card (TORCH_MUSA_SIM_MEMORY).";
    case musaErrorSimHostMemory:
      return " The host, not the card, is full: free host memory, or set TORCH_MUSA_SIM_HOST_MEMORY=overcommit to "
             "switch this check off.";
    default:
      return "";
  }
}

}  // namespace

void throw_runtime_error(musaError_t status, const char* call) {
  const char* last = musaSimGetLastErrorDetail();
  const std::string detail = last && *last ? std::string(" ") + last : std::string();
  musaGetLastError();
  if (status == musaErrorSimForked) {
    TORCH_CHECK(
        false,
        "Cannot re-initialize MUSA in forked subprocess. To use MUSA with multiprocessing, you must use the 'spawn' "
        "start method");
  }
  TORCH_CHECK(status != musaErrorSimRace, "MUSA race:", detail);
  const bool dead = status == musaErrorLaunchFailure || status == musaErrorECCUncorrectable ||
      status == musaErrorDevicesUnavailable;  // the detail names the card, which needn't be the current one
  const std::string text = musaGetErrorString(status) + std::string(" (") + musaGetErrorName(status) + ") in " +
      std::string(function_name(call)) + (dead ? "" : where()) + "." + detail + what_to_do(status);
  if (status == musaErrorMemoryAllocation || status == musaErrorSimHostMemory) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "MUSA out of memory: ", text);
  }
  throw c10::AcceleratorError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, static_cast<int32_t>(status), "MUSA error: " + text);
}

}  // namespace musa
