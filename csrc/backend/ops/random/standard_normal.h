// Standard normal numbers by the batch, from uniform words (Box and Muller, 1958).
#pragma once

#include <cstdint>

namespace musa::random {

/// 256 words make 256 floats or 128 doubles. Two words (four for doubles) make a pair: radius times cosine and sine.
/// Floats reach 6.7 standard deviations, doubles 8.6.
void standard_normals(const uint32_t* words, float* normals);
void standard_normals(const uint32_t* words, double* normals);

}  // namespace musa::random
