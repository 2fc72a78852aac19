#include "backend/ops/random/standard_normal.h"

#include <cmath>
#include <numbers>

#include "backend/ops/random/clones.h"

namespace musa::random {
namespace {

constexpr int kPairs = 128;

/// Natural logarithm of a positive normal float, within 2 units in the last place. No branch and no call, so that a
/// loop over it becomes vector code.
inline float log_of(float x) {
  // x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh((m - 1) / (m + 1)) as a series.
  const int32_t bits = __builtin_bit_cast(int32_t, x);
  constexpr int32_t kRootHalf = 0x3f3504f3;  // sqrt(1/2)
  const int32_t exponent = (bits - kRootHalf) >> 23;
  const float m = __builtin_bit_cast(float, bits - exponent * (1 << 23));
  const float s = (m - 1) / (m + 1);
  const float z = s * s;
  const float series = z * (2.0f / 3 + z * (2.0f / 5 + z * (2.0f / 7 + z * (2.0f / 9))));
  // ln 2 in two parts, the first short enough for an exact product.
  const float e = static_cast<float>(exponent);
  constexpr float kHigh = 0.693359375f, kLow = static_cast<float>(std::numbers::ln2 - 0.693359375);
  return e * kHigh + (e * kLow + (s * series + 2 * s));
}

}  // namespace

// Without fused multiply-adds (avx2 alone has none), so the numbers are the same on every machine.
MUSA_VECTOR_CLONES void standard_normals(const uint32_t* words, float* normals) {
#pragma omp simd
  for (int pair = 0; pair < kPairs; ++pair) {
    // The float nearest to 1 - 2^-33 is 1: radius 0, as it should be.
    const uint32_t word = words[2 * pair];
    const float high = static_cast<float>(static_cast<int32_t>(word >> 8));
    const float low = static_cast<float>(static_cast<int32_t>(word & 0xff));
    const float u = (high * 256 + (low + 0.5f)) * 0x1p-32f;
    const float radius = __builtin_sqrtf(-2 * log_of(u));
    // 24 bits of a turn: the nearest quarter, and what is left of it as an angle of at most pi / 4.
    const auto turn = static_cast<int32_t>(words[2 * pair + 1] >> 8);
    const int32_t quarter = (turn + (1 << 21)) >> 22;
    const float a = static_cast<float>(turn - quarter * (1 << 22)) * static_cast<float>(std::numbers::pi * 0x1p-23);
    const float z = a * a;  // Taylor series, off by less than 2e-9
    const float sine = a + a * z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880))));
    const float cosine =
        1 + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320 + z * (-1.0f / 3628800)))));
    const bool swap = (quarter & 1) != 0;
    const float x = swap ? sine : cosine;
    const float y = swap ? cosine : sine;
    normals[2 * pair] = ((quarter + 1) & 2) != 0 ? -(radius * x) : radius * x;
    normals[2 * pair + 1] = (quarter & 2) != 0 ? -(radius * y) : radius * y;
  }
}

void standard_normals(const uint32_t* words, double* normals) {
  for (int pair = 0; pair < kPairs / 2; ++pair) {
    const uint32_t* w = words + 4 * pair;
    const uint64_t first = w[0] | static_cast<uint64_t>(w[1]) << 32;
    const uint64_t second = w[2] | static_cast<uint64_t>(w[3]) << 32;
    const double u = (static_cast<double>(first >> 12) + 0.5) * 0x1p-52;
    const double angle = static_cast<double>(second >> 11) * (0x1p-52 * std::numbers::pi);
    const double radius = std::sqrt(-2 * std::log(u));
    normals[2 * pair] = radius * std::cos(angle);
    normals[2 * pair + 1] = radius * std::sin(angle);
  }
}

}  // namespace musa::random
