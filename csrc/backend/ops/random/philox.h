// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011): ten keyed rounds turn a 128-bit counter into 128 random bits, with no state between calls.
#pragma once

#include <cstdint>

#include "backend/generator.h"

namespace musa::random {

struct PhiloxBlock {
  uint32_t words[4];
};

/// The 128 bits of one counter; `low` and `high` are its halves. The reference form, used draw by draw.
inline PhiloxBlock philox_block(uint64_t key, uint64_t low, uint64_t high) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(low), c1 = static_cast<uint32_t>(low >> 32);
  uint32_t c2 = static_cast<uint32_t>(high), c3 = static_cast<uint32_t>(high >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * c0;
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

// How an operator uses the counter. The lower half is the generator's offset / 4, so two operators never share a
// counter; the upper half is the block within the operator. A block serves a few neighbouring elements of the tensor in
// logical order (four floats, two doubles), hence an element's value depends on seed, offset and its own index only:
// not on threads, not on strides. Any operator, however large, therefore advances the offset by one step.
constexpr uint64_t kOffsetsPerOperator = 4;

/// Blocks `first` .. `first + count` of an operator, 4 words each, in order. Vectorised for the machine it runs on.
void philox_words(PhiloxPosition position, uint64_t first, int64_t count, uint32_t* words);

/// All the numbers one element wants, for samplers that reject: the draw counts in the upper 24 bits of the block
/// index, the element in the lower 40 (a tensor of 2^40 elements does not fit a card).
class ElementStream {
 public:
  ElementStream(PhiloxPosition position, int64_t element) : position_(position), element_(element) {}

  uint64_t next_bits() {
    if (used_ == 4) {
      block_ = philox_block(position_.seed, position_.offset / 4, element_ | draws_++ << 40);
      used_ = 0;
    }
    const uint64_t bits = block_.words[used_] | static_cast<uint64_t>(block_.words[used_ + 1]) << 32;
    used_ += 2;
    return bits;
  }
  /// Uniform in (0, 1), 52 bits.
  double next_open() { return (static_cast<double>(next_bits() >> 12) + 0.5) * 0x1p-52; }
  double next_normal();

 private:
  PhiloxPosition position_;
  uint64_t element_;
  uint64_t draws_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace musa::random
