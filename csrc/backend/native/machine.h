// What the host can do at most, for benchmarks and for the choice among kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace musa {

/// "portable", "avx2" or "avx512": in force, and the best of this CPU and build.
std::string instruction_set();
std::string best_instruction_set();

/// Reads all of a contiguous CPU tensor once, through four streams. Its size is rounded down to 4 KiB.
float read_memory(const at::Tensor& memory);

/// `rounds` rounds of the densest multiply-adds of float32, bfloat16 or int8; returns how many operations that were.
double run_peak(c10::ScalarType type, int64_t rounds);

}  // namespace musa
