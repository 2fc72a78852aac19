// What this machine can do at most: the yardstick of benchmarks/kernels.py.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mudnn {

enum class PeakKind { kFloat32, kBfloat16, kInt8 };

/// Reads `bytes` bytes (a multiple of 4 KiB) once through four streams a quarter of the memory apart, in the calling
/// thread. Returns a value that depends on all of them, so that no read can be left out.
float read_four_streams(const void* memory, size_t bytes);

/// Runs `rounds` rounds of the densest multiply-add sequence known for `kind` at the instruction set in force, on
/// registers alone. Returns the operations done (a multiply-add counts as two).
double run_peak(PeakKind kind, int64_t rounds);

struct LimitKernels {
  float (*read_four_streams)(const void* memory, size_t bytes);
  double (*run_peak)(PeakKind kind, int64_t rounds);
};

}  // namespace mudnn
