#include "mudnn/limits.h"

#include "mudnn/kernels/vec.h"

namespace mudnn {
namespace {

float read_streams(const void* memory, size_t bytes) {
  const size_t quarter = bytes / 4 / sizeof(float);
  const float* p = static_cast<const float*>(memory);
  Vec sum[8];
  for (Vec& s : sum) {
    s = zero();
  }
  for (size_t i = 0; i < quarter; i += size_t{2} * Vec::kLanes) {
    for (size_t stream = 0; stream < 4; ++stream) {
      const float* q = p + stream * quarter + i;
      sum[2 * stream] = sum[2 * stream] + load(q);
      sum[2 * stream + 1] = sum[2 * stream + 1] + load(q + Vec::kLanes);
    }
  }
  Vec total = zero();
  for (const Vec& s : sum) {
    total = total + s;
  }
  return reduce_add(total);
}

// Twelve independent chains hide the latency of a multiply-add, whatever it is on CPUs of the last ten years.
constexpr int kChains = 12;

// Keeps the compiler from seeing through a round; costs no instruction.
#if MUDNN_LEVEL == 2
#define MUDNN_OPAQUE(x) asm volatile("" : "+v"(x))
#else
#define MUDNN_OPAQUE(x) asm volatile("" : "+x"(x))
#endif

template <class Register, class Step>
MUDNN_INLINE void run_chains(Register (&chains)[kChains], int64_t rounds, Step&& step) {
  Register a = chains[0], b = chains[1], c = chains[2], d = chains[3], e = chains[4], f = chains[5];
  Register g = chains[6], h = chains[7], i = chains[8], j = chains[9], k = chains[10], l = chains[11];
  for (int64_t round = 0; round < rounds; ++round) {
    a = step(a), b = step(b), c = step(c), d = step(d), e = step(e), f = step(f);
    g = step(g), h = step(h), i = step(i), j = step(j), k = step(k), l = step(l);
    MUDNN_OPAQUE(a);
    MUDNN_OPAQUE(g);
  }
  MUDNN_OPAQUE(b);
  MUDNN_OPAQUE(c);
  MUDNN_OPAQUE(d);
  MUDNN_OPAQUE(e);
  MUDNN_OPAQUE(f);
  MUDNN_OPAQUE(h);
  MUDNN_OPAQUE(i);
  MUDNN_OPAQUE(j);
  MUDNN_OPAQUE(k);
  MUDNN_OPAQUE(l);
}

double run_float32(int64_t rounds) {
  decltype(Vec::v) chains[kChains];
  for (auto& chain : chains) {
    chain = zero().v;
  }
  const Vec x = splat(0.5f);
  run_chains(chains, rounds, [&](auto chain) { return fma(x, x, Vec{chain}).v; });
  return static_cast<double>(rounds) * kChains * Vec::kLanes * 2;
}

#if MUDNN_LEVEL == 2
double run_bfloat16(int64_t rounds) {
  __m512 chains[kChains];
  for (__m512& chain : chains) {
    chain = _mm512_setzero_ps();
  }
  const __m512bh x = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f00));
  run_chains(chains, rounds, [&](__m512 chain) { return _mm512_dpbf16_ps(chain, x, x); });
  return static_cast<double>(rounds) * kChains * 64;
}

double run_int8(int64_t rounds) {
  __m512i chains[kChains];
  for (__m512i& chain : chains) {
    chain = _mm512_setzero_si512();
  }
  const __m512i x = _mm512_set1_epi8(3);
  run_chains(chains, rounds, [&](__m512i chain) { return _mm512_dpbusd_epi32(chain, x, x); });
  return static_cast<double>(rounds) * kChains * 128;
}
#else
// Below AVX-512 16-bit floats are widened and multiplied as float32: the widening is free at best.
double run_bfloat16(int64_t rounds) { return run_float32(rounds); }

#if MUDNN_LEVEL == 1
double run_int8(int64_t rounds) {
  __m256i chains[kChains];
  for (__m256i& chain : chains) {
    chain = _mm256_setzero_si256();
  }
  const __m256i x = _mm256_set1_epi8(3);
  const __m256i ones = _mm256_set1_epi16(1);
  run_chains(chains, rounds, [&](__m256i chain) {
    __m256i left = x;
    MUDNN_OPAQUE(left);
    return _mm256_add_epi32(chain, _mm256_madd_epi16(_mm256_maddubs_epi16(left, x), ones));
  });
  return static_cast<double>(rounds) * kChains * 64;
}
#else
double run_int8(int64_t rounds) { return run_float32(rounds); }
#endif
#endif

double run_kind(PeakKind kind, int64_t rounds) {
  switch (kind) {
    case PeakKind::kBfloat16:
      return run_bfloat16(rounds);
    case PeakKind::kInt8:
      return run_int8(rounds);
    case PeakKind::kFloat32:
      break;
  }
  return run_float32(rounds);
}

}  // namespace

MUDNN_TABLE(LimitKernels, limits) = {read_streams, run_kind};

}  // namespace mudnn
