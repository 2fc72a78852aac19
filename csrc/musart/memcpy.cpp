// Copies and fills: the bytes move at once, through the alias; the clock says when the card would be done.
#include <stdlib.h>
#include <string.h>

#include "musart/fault_plan.h"
#include "musart/memory.h"
#include "musart/pinned.h"
#include "musart/races.h"
#include "musart/stream.h"

namespace musart {
namespace {

struct Side {
  int device = -1;  // -1: the host
  void* bytes = nullptr;  // where this process may touch them
  bool pinned = false;
};

musaError_t locate(const void* pointer, size_t bytes, const char* call, const char* role, Side* side) {
  if (is_device_pointer(pointer)) {
    MUSART_TRY(check_device_range(pointer, bytes, call, role));
    *side = {device_of(pointer), to_alias(pointer), false};
    return musaSuccess;
  }
  if (pointer == nullptr) return fail(musaErrorInvalidValue, "%s: %s is NULL", call, role);
  *side = {-1, const_cast<void*>(pointer), is_pinned(pointer)};
  return musaSuccess;
}

musaError_t check_kind(const char* call, const Side& to, const Side& from, musaMemcpyKind kind) {
  if (kind == musaMemcpyDefault) return musaSuccess;
  const char* names[] = {
      "musaMemcpyHostToHost", "musaMemcpyHostToDevice", "musaMemcpyDeviceToHost", "musaMemcpyDeviceToDevice"};
  const int actual = (from.device >= 0 ? 2 : 0) + (to.device >= 0 ? 1 : 0);
  if (kind < musaMemcpyHostToHost || kind > musaMemcpyDefault) {
    return fail(musaErrorInvalidMemcpyDirection, "%s: kind %d; accepted: 0 .. 4", call, static_cast<int>(kind));
  }
  if (kind == actual) return musaSuccess;
  return fail(
      musaErrorInvalidMemcpyDirection, "%s: kind is %s, but the pointers make it %s", call, names[kind], names[actual]);
}

// An asynchronous copy to or from page-locked memory under the race checker: the host must not see its end yet.
struct Pending {
  void* to;
  const void* from;  // NULL when the host is the target
  void* held;        // the bytes that will arrive at the host, or those that the host had when the copy was launched
  size_t bytes;
};

bool is_poison(const void* memory, size_t bytes) {
  const auto* byte = static_cast<const unsigned char*>(memory);
  for (size_t i = 0; i < bytes; ++i) {
    if (byte[i] != musaSimPoison) return false;
  }
  return true;
}

int finish_pending(void* context, musaSimFinish how) {
  auto* pending = static_cast<Pending*>(context);
  bool touched = false;
  if (how != musaSimFinishDrop && pending->from == nullptr) {
    touched = !is_poison(pending->to, pending->bytes);
    memcpy(pending->to, pending->held, pending->bytes);
  } else if (how != musaSimFinishDrop) {
    touched = memcmp(pending->from, pending->held, pending->bytes) != 0;
    if (touched && how == musaSimFinishCopy) memcpy(pending->to, pending->from, pending->bytes);
  }
  free(pending->held);
  delete pending;
  return touched ? 1 : 0;
}

musaError_t defer(const char* call, MusaStream& stream, const Side& to, const Side& from, void* device, size_t bytes) {
  void* held = malloc(bytes);
  if (held == nullptr) {
    return fail(
        musaErrorSimHostMemory, "%s: the host has no %zu bytes for what the race checker must keep of the copy", call,
        bytes);
  }
  const bool to_host = to.device < 0;
  memcpy(held, from.bytes, bytes);
  if (to_host) {
    memset(to.bytes, musaSimPoison, bytes);
  } else {
    memcpy(to.bytes, from.bytes, bytes);
  }
  auto* pending = new Pending{to.bytes, to_host ? nullptr : from.bytes, held, bytes};
  const void* host = to_host ? to.bytes : from.bytes;
  const musaSimDeferredCopy copy{call, host, bytes, device, bytes, to_host, &finish_pending, pending};
  return musaSimDeferCopy(&stream, &copy);
}

// Moves the bytes, and tells the race checker of both sides; page-locked memory is one that others may be using, too.
musaError_t move_checked(
    const char* call, void* to, const void* from, size_t bytes, MusaStream& stream, const Side& target,
    const Side& source, bool wait) {
  if (source.device >= 0 || source.pinned) MUSART_TRY(musaSimAccess(&stream, from, bytes, 0, call));
  if (target.device >= 0 || target.pinned) MUSART_TRY(musaSimAccess(&stream, to, bytes, 1, call));
  const bool pinned = target.device < 0 ? target.pinned : source.device < 0 && source.pinned;
  if (pinned && !wait) {
    void* device = target.device < 0 ? const_cast<void*>(from) : to;
    return defer(call, stream, target, source, device, bytes);
  }
  memmove(target.bytes, source.bytes, bytes);
  return musaSuccess;
}

musaError_t copy(
    const char* call, void* to, const void* from, size_t bytes, musaMemcpyKind kind, musaStream_t stream, bool wait) {
  MUSART_TRY(resolve(&stream));
  if (bytes == 0) return musaSuccess;
  Side target;
  Side source;
  MUSART_TRY(locate(to, bytes, call, "the target", &target));
  MUSART_TRY(locate(from, bytes, call, "the source", &source));
  MUSART_TRY(check_kind(call, target, source, kind));
  const bool on_host = target.device < 0 && source.device < 0;
  if (faults::possible() && !on_host) {
    MUSART_TRY(musaSimBeforeWork(stream, musaSimFaultCopy, call));
    for (const int device : {target.device, source.device}) {
      if (device >= 0 && device != stream->card->index) MUSART_TRY(faults::before_call(device, call));
    }
  }
  if (watches_races() && !on_host) {
    MUSART_TRY(move_checked(call, to, from, bytes, *stream, target, source, wait));
  } else {
    memmove(target.bytes, source.bytes, bytes);
  }
  if (on_host) return musaSuccess;  // the card has no part in it
  const bool pinned = target.device < 0 ? target.pinned : source.pinned;
  const musaSimSpan span = enqueue_copy(*stream, target.device, source.device, bytes, pinned);
  if (__builtin_expect(watched() != 0, 0)) {
    const MemoryAccess accesses[] = {{from, bytes, false}, {to, bytes, true}};
    MUSART_TRY(tell(
        {.kind = ActivityKind::kCopy,
         .name = call,
         .device = stream->card->index,
         .stream = stream,
         .span = span,
         .bytes = static_cast<double>(bytes),
         .to_device = target.device,
         .from_device = source.device,
         .pinned = pinned,
         .accesses = accesses}));
  }
  // A copy between cards never holds up the host; a pageable one already has.
  if (wait && pinned && !launch_blocking()) wait_host(span.end_ns, stream->card->figures.sync_ns);
  // A pageable copy to the host returns when the bytes are there; one from the host when they are on their way.
  const bool host_has_waited = pinned ? wait : target.device < 0;
  return watches_races() && host_has_waited ? races::host_waited(stream) : musaSuccess;
}

}  // namespace
}  // namespace musart

using musart::fail;

extern "C" {

musaError_t musaMemcpy(void* to, const void* from, size_t bytes, musaMemcpyKind kind) {
  return musart::copy("musaMemcpy", to, from, bytes, kind, nullptr, true);
}

musaError_t musaMemcpyAsync(void* to, const void* from, size_t bytes, musaMemcpyKind kind, musaStream_t stream) {
  return musart::copy("musaMemcpyAsync", to, from, bytes, kind, stream, false);
}

musaError_t musaMemcpyPeerAsync(
    void* to, int to_device, const void* from, int from_device, size_t bytes, musaStream_t stream) {
  musart::Card* card = nullptr;
  MUSART_TRY(musart::card_at(to_device, &card));
  MUSART_TRY(musart::card_at(from_device, &card));
  const auto lies_on = [](const void* pointer, int device) {
    return musart::is_device_pointer(pointer) && musart::device_of(pointer) == device;
  };
  if (bytes != 0 && (!lies_on(to, to_device) || !lies_on(from, from_device))) {
    return fail(
        musaErrorInvalidValue, "musaMemcpyPeerAsync: %p isn't on card musa:%d or %p isn't on card musa:%d", to,
        to_device, from, from_device);
  }
  return musart::copy("musaMemcpyPeerAsync", to, from, bytes, musaMemcpyDeviceToDevice, stream, false);
}

musaError_t musaMemsetAsync(void* pointer, int value, size_t bytes, musaStream_t stream) {
  MUSART_TRY(musart::resolve(&stream));
  if (bytes == 0) return musaSuccess;
  if (!musart::is_device_pointer(pointer)) {
    return fail(musaErrorInvalidValue, "musaMemset: %p is no device address", pointer);
  }
  MUSART_TRY(musart::check_device_range(pointer, bytes, "musaMemset", "the target"));
  MUSART_TRY(musaSimBeforeWork(stream, musaSimFaultLaunch, "musaMemset"));
  if (musart::watches_races()) MUSART_TRY(musaSimAccess(stream, pointer, bytes, 1, "musaMemset"));
  memset(musart::to_alias(pointer), value, bytes);
  const musaSimCost cost{0, static_cast<double>(bytes), musaSimInt32};
  const musaSimSpan span = musart::enqueue(*stream, musart::kernel_time(stream->card->figures, cost));
  if (__builtin_expect(musart::watched() != 0, 0)) {
    const musart::MemoryAccess access[] = {{pointer, bytes, true}};
    musart::tell(
        {.kind = musart::ActivityKind::kFill,
         .name = "musaMemset",
         .device = stream->card->index,
         .stream = stream,
         .span = span,
         .bytes = cost.bytes,
         .to_device = stream->card->index,
         .accesses = access});
  }
  return musaSuccess;
}

musaError_t musaMemset(void* pointer, int value, size_t bytes) {
  return musaMemsetAsync(pointer, value, bytes, nullptr);
}

}  // extern "C"
