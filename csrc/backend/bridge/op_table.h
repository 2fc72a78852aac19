// What the bridge must know about single operators beyond their schema.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string_view>

namespace musa {

enum OpFlags : uint32_t {
  kNoFlags = 0,
  /// The host waits for the result on CUDA (its size or value is read): the host clock advances to the stream.
  kSynchronizes = 1u << 0,
  /// CUDA takes CPU tensors of any size beside device tensors (indices of a device tensor, lengths).
  kTakesCpuTensors = 1u << 1,
  /// Index rule: indices may be on the CPU, but a CPU tensor can't be indexed by device tensors.
  kIndexes = 1u << 2,
  /// The second result stays on the CPU, as on CUDA.
  kSecondResultOnCpu = 1u << 3,
  /// Only metadata or memory changes: nothing runs on the card.
  kNoLaunch = 1u << 4,
  /// The generated device check of CUDA lets no CPU tensor pass, not even a 0-dim one.
  kRefusesCpuScalars = 1u << 5,
  /// With accumulate=True (the fourth argument) the CPU kernel adds atomically from several threads, in an order that
  /// changes from run to run; one thread makes the sum repeatable.
  kSerialAccumulation = 1u << 6,
};

/// Which formula of flops.h applies.
enum class FlopRule : uint8_t {
  kNone,
  kMatmul,     // (a, b, ...)
  kMatmulAdd,  // (added, a, b, ...)
  kAttention,
  kAttentionBackward,
};

struct OpFacts {
  uint32_t flags = kNoFlags;
  FlopRule flops = FlopRule::kNone;
};

/// `name` without namespace and overload ("index_put_"), `overload` may be empty.
OpFacts op_facts(std::string_view name, std::string_view overload);

/// The dtype in which to run `name` for tensors of `dtype`; `dtype` itself when the CPU kernel takes it.
c10::ScalarType compute_dtype(std::string_view name, c10::ScalarType dtype);
/// Whether compute_dtype ever answers something else for this operator.
bool has_upcast(std::string_view name);

}  // namespace musa
