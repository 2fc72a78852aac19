#include "musart/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "musart/musart_faults.h"

namespace musart {
namespace {

// Trivial types only: a call from an exit handler must still find them alive.
thread_local musaError_t last_error = musaSuccess;
thread_local char last_detail[1024] = "";
// Longer texts (race reports) lie here. Not a larger array: room for thread-local data is scarce in a library that is
// loaded late.
constexpr size_t kLongDetail = 4096;
thread_local char* long_detail = nullptr;
thread_local bool detail_is_long = false;

struct ErrorText {
  musaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {musaSuccess, "musaSuccess", "no error"},
    {musaErrorInvalidValue, "musaErrorInvalidValue", "invalid argument"},
    {musaErrorMemoryAllocation, "musaErrorMemoryAllocation", "out of memory"},
    {musaErrorInitializationError, "musaErrorInitializationError", "initialization error"},
    {musaErrorInvalidMemcpyDirection, "musaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {musaErrorDevicesUnavailable, "musaErrorDevicesUnavailable", "MUSA-capable device(s) is/are busy or unavailable"},
    {musaErrorNoDevice, "musaErrorNoDevice", "no MUSA-capable device is detected"},
    {musaErrorInvalidDevice, "musaErrorInvalidDevice", "invalid device ordinal"},
    {musaErrorECCUncorrectable, "musaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {musaErrorInvalidResourceHandle, "musaErrorInvalidResourceHandle", "invalid resource handle"},
    {musaErrorNotReady, "musaErrorNotReady", "device not ready"},
    {musaErrorPeerAccessAlreadyEnabled, "musaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {musaErrorPeerAccessNotEnabled, "musaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {musaErrorHostMemoryAlreadyRegistered, "musaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {musaErrorHostMemoryNotRegistered, "musaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {musaErrorLaunchFailure, "musaErrorLaunchFailure", "unspecified launch failure"},
    {musaErrorNotSupported, "musaErrorNotSupported", "operation not supported"},
    {musaErrorUnknown, "musaErrorUnknown", "unknown error"},
    {musaErrorSimHostMemory, "musaErrorSimHostMemory", "the host that simulates the cards is out of memory"},
    {musaErrorSimRace, "musaErrorSimRace", "a race between streams"},
    {musaErrorSimForked, "musaErrorSimForked", "the device was used before fork()"},
};

const ErrorText* find(musaError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

}  // namespace

musaError_t fail(musaError_t error, const char* format, ...) {
  last_error = error;
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  detail_is_long =
      static_cast<size_t>(vsnprintf(last_detail, sizeof last_detail, format, arguments)) >= sizeof last_detail;
  if (detail_is_long && long_detail == nullptr) long_detail = static_cast<char*>(malloc(kLongDetail));
  detail_is_long = detail_is_long && long_detail != nullptr;
  if (detail_is_long) vsnprintf(long_detail, kLongDetail, format, again);
  va_end(again);
  va_end(arguments);
  return error;
}

void warn(const char* format, ...) {
  char line[2048];
  int used = snprintf(line, sizeof line, "torch_musa_sim: warning: ");
  va_list arguments;
  va_start(arguments, format);
  used += vsnprintf(line + used, sizeof line - used - 1, format, arguments);
  va_end(arguments);
  if (used > static_cast<int>(sizeof line) - 2) used = sizeof line - 2;
  line[used++] = '\n';
  // One write, so that the lines of several ranks don't mix.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, used);
}

}  // namespace musart

extern "C" {

const char* musaGetErrorName(musaError_t error) {
  const musart::ErrorText* entry = musart::find(error);
  return entry ? entry->name : "unrecognized error code";
}

const char* musaGetErrorString(musaError_t error) {
  const musart::ErrorText* entry = musart::find(error);
  return entry ? entry->text : "unrecognized error code";
}

musaError_t musaGetLastError(void) {
  const musaError_t error = musart::last_error;
  musart::last_error = musaSuccess;
  return error;
}

musaError_t musaPeekAtLastError(void) { return musart::last_error; }

const char* musaSimGetLastErrorDetail(void) {
  return musart::detail_is_long ? musart::long_detail : musart::last_detail;
}

}  // extern "C"
