#include "mudnn/limits.h"

#include "mudnn/isa.h"

namespace mudnn {

MUDNN_TABLES_OF(LimitKernels, limits)

float read_four_streams(const void* memory, size_t bytes) { return limits_kernels().read_four_streams(memory, bytes); }

double run_peak(PeakKind kind, int64_t rounds) { return limits_kernels().run_peak(kind, rounds); }

}  // namespace mudnn
