#include <string>
#include <vector>

#include "musart/capture.h"
#include "musart/memory.h"
#include "musart/musart_ext.h"
#include "musart/races.h"
#include "musart/runtime.h"
#include "musart/status.h"
#include "musart/stream.h"
#include "musart/watch.h"

namespace musart {
namespace {

constexpr const char* kCall = "musaLaunchHostKernel";

bool is_written(const musaKernelArgs& args, int i) { return args.written == nullptr || args.written[i] != 0; }

musaError_t check_args(musaHostKernel_t kernel, const musaKernelArgs* args) {
  if (kernel == nullptr || args == nullptr || args->name == nullptr) {
    return fail(musaErrorInvalidValue, "%s: the kernel, its arguments or its name is NULL", kCall);
  }
  if (args->count < 0 || args->count > musaSimMaxKernelRanges) {
    return fail(
        musaErrorInvalidValue, "%s(%s): %d ranges; accepted: 0 .. %d", kCall, args->name, args->count,
        musaSimMaxKernelRanges);
  }
  if (args->count > 0 && (args->ranges == nullptr || args->bytes == nullptr)) {
    return fail(musaErrorInvalidValue, "%s(%s): ranges or bytes is NULL", kCall, args->name);
  }
  const musaSimCost& cost = args->cost;
  if (!(cost.flops >= 0) || !(cost.bytes >= 0) || static_cast<unsigned>(cost.dtype) >= musaSimDtypeCount) {
    return fail(musaErrorInvalidValue, "%s(%s): the cost is negative or of an unknown dtype", kCall, args->name);
  }
  return musaSuccess;
}

// The host's address of each range.
musaError_t find_ranges(const musaKernelArgs& args, int device, std::vector<void*>* pointers) {
  const std::string role = std::string("a range of ") + args.name;
  for (int i = 0; i < args.count; ++i) {
    void* range = args.ranges[i];
    if (range == nullptr) {
      pointers->push_back(nullptr);
      continue;
    }
    if (!is_device_pointer(range)) {
      return fail(
          musaErrorInvalidValue, "%s(%s): range %d (%p) is no device memory; a kernel reaches nothing else", kCall,
          args.name, i, range);
    }
    if (device_of(range) != device) {
      return fail(
          musaErrorInvalidValue, "%s(%s): range %d (%p) lies on card %d, the stream is one of card %d", kCall,
          args.name, i, range, device_of(range), device);
    }
    MUSART_TRY(check_device_range(range, args.bytes[i], kCall, role.c_str()));
    pointers->push_back(to_alias(range));
  }
  return musaSuccess;
}

musaError_t report_accesses(const musaKernelArgs& args, musaStream_t stream) {
  for (int i = 0; i < args.count; ++i) {
    if (args.ranges[i] == nullptr || args.bytes[i] == 0) continue;
    MUSART_TRY(musaSimAccess(stream, args.ranges[i], args.bytes[i], is_written(args, i) ? 1 : 0, args.name));
  }
  return musaSuccess;
}

musaError_t tell_watchers(const musaKernelArgs& args, musaStream_t stream, const musaSimSpan& span) {
  std::vector<MemoryAccess> accesses;
  for (int i = 0; i < args.count; ++i) {
    if (args.ranges[i] != nullptr) accesses.push_back({args.ranges[i], args.bytes[i], is_written(args, i)});
  }
  return tell(
      {.kind = ActivityKind::kKernel,
       .name = args.name,
       .device = stream->card->index,
       .stream = stream,
       .span = span,
       .flops = args.cost.flops,
       .bytes = args.cost.bytes,
       .accesses = accesses});
}

}  // namespace
}  // namespace musart

extern "C" musaError_t musaLaunchHostKernel(
    musaHostKernel_t kernel, const musaKernelArgs* args, void* user, musaStream_t stream) {
  MUSART_TRY(musart::check_args(kernel, args));
  MUSART_TRY(musart::resolve(&stream));
  MUSART_TRY(musart::refuse_captured(*stream, musart::kCall));
  std::vector<void*> pointers;
  pointers.reserve(static_cast<size_t>(args->count));
  MUSART_TRY(musart::find_ranges(*args, stream->card->index, &pointers));
  if (musart::watches_races()) MUSART_TRY(musart::report_accesses(*args, stream));
  kernel(pointers.data(), args, user);
  musaSimSpan span{};
  MUSART_TRY(musaSimLaunch(stream, &args->cost, &span));
  return musart::watched() != 0 ? musart::tell_watchers(*args, stream, span) : musaSuccess;
}
