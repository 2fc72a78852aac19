#include "backend/ops/random/philox.h"

#include <cmath>

#include "backend/ops/random/clones.h"

namespace musa::random {
namespace {

constexpr int kLanes = 16;

// Lane by lane through each round, so that the compiler turns the inner loops into vector code.
MUSA_VECTOR_CLONES void sixteen_blocks(uint64_t key, uint64_t low, uint64_t first, uint32_t* words) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t high = first + static_cast<uint64_t>(lane);
    c0[lane] = static_cast<uint32_t>(low);
    c1[lane] = static_cast<uint32_t>(low >> 32);
    c2[lane] = static_cast<uint32_t>(high);
    c3[lane] = static_cast<uint32_t>(high >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0[lane];
      const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2[lane];
      c0[lane] = static_cast<uint32_t>(p1 >> 32) ^ c1[lane] ^ k0;
      c1[lane] = static_cast<uint32_t>(p1);
      c2[lane] = static_cast<uint32_t>(p0 >> 32) ^ c3[lane] ^ k1;
      c3[lane] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    words[4 * lane] = c0[lane];
    words[4 * lane + 1] = c1[lane];
    words[4 * lane + 2] = c2[lane];
    words[4 * lane + 3] = c3[lane];
  }
}

}  // namespace

void philox_words(PhiloxPosition position, uint64_t first, int64_t count, uint32_t* words) {
  const uint64_t low = position.offset / 4;
  int64_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    sixteen_blocks(position.seed, low, first + static_cast<uint64_t>(done), words + 4 * done);
  }
  for (; done < count; ++done) {
    const PhiloxBlock block = philox_block(position.seed, low, first + static_cast<uint64_t>(done));
    for (int word = 0; word < 4; ++word) {
      words[4 * done + word] = block.words[word];
    }
  }
}

// Box-Muller; the pair's second value is kept for the next call.
double ElementStream::next_normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2 * std::log(next_open()));
  const double angle = 2 * M_PI * next_open();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

}  // namespace musa::random
