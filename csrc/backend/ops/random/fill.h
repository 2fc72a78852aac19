// The loop under every element-wise random operator: Philox words in, values out, in logical order of the tensor.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/bridge/host_view.h"
#include "backend/generator.h"
#include "backend/ops/random/philox.h"

namespace musa::random {

/// Where an operator on `device` draws from: takes its offsets under the generator's lock.
inline PhiloxPosition draw_position(const std::optional<at::Generator>& given, c10::Device device) {
  MusaGenerator* generator = generator_for(given, device);
  std::lock_guard<std::mutex> lock(generator->mutex_);
  return generator->reserve(kOffsetsPerOperator);
}

/// Calls `body(begin, end)` on ranges of `count` elements in parallel, about `grain` elements each.
template <typename Body>
void for_ranges(int64_t count, int64_t grain, const Body& body) {
  at::parallel_for(0, count, grain, body);
}

/// Calls `write(T* values)` with room for all elements of `host` in logical order, whatever its strides.
/// Call inside a CardScope: a strided tensor goes through a contiguous one in card memory.
template <typename T, typename Write>
void write_in_order(const at::Tensor& host, const Write& write) {
  if (host.is_contiguous()) {
    write(host.mutable_data_ptr<T>());
    return;
  }
  at::Tensor ordered = at::empty(host.sizes(), host.options());
  write(ordered.mutable_data_ptr<T>());
  host.copy_(ordered);
}

/// Fills `values[0 .. count)` from the operator's words. `transform(const uint32_t* words, T* values, int64_t index)`
/// makes kValues values out of kWords words, `index` being that of the first value; both divide a block of 4 words.
template <int kWords, int kValues, typename T, typename Transform>
void fill_values(T* values, int64_t count, PhiloxPosition position, const Transform& transform) {
  static_assert(4 % kWords == 0);
  constexpr int64_t kGroups = 4 / kWords;                    // groups of values in a block
  constexpr int64_t kBlockValues = kGroups * kValues;        // values in a block
  constexpr int64_t kBatch = 64;                             // blocks made at a time: 1 KiB of words
  const int64_t blocks = (count + kBlockValues - 1) / kBlockValues;
  for_ranges(blocks, 4096, [&](int64_t begin, int64_t end) {
    std::array<uint32_t, 4 * kBatch> words;
    for (int64_t block = begin; block < end; block += kBatch) {
      const int64_t made = std::min(kBatch, end - block);
      philox_words(position, static_cast<uint64_t>(block), made, words.data());
      const int64_t first = block * kBlockValues;
      const int64_t whole = std::min(made * kGroups, (count - first) / kValues);
      for (int64_t group = 0; group < whole; ++group) {
        const int64_t index = first + group * kValues;
        transform(words.data() + group * kWords, values + index, index);
      }
      if constexpr (kValues > 1) {
        const int64_t index = first + whole * kValues;
        if (whole < made * kGroups && index < count) {
          std::array<T, kValues> last;
          transform(words.data() + whole * kWords, last.data(), index);
          std::copy_n(last.data(), count - index, values + index);
        }
      }
    }
  });
}

/// A word lies below this with probability `p` in [0, 1], to 32 bits; exact for 0 and 1.
inline uint64_t word_threshold(double p) { return static_cast<uint64_t>(std::llround(p * 0x1p32)); }

inline uint64_t join_words(const uint32_t* words) { return words[0] | static_cast<uint64_t>(words[1]) << 32; }

/// How a floating type is drawn: in which type it is computed and how many words a uniform number takes.
template <typename T>
struct Draw {
  using Compute = float;
  static constexpr int kWords = 1;
  /// Uniform in [0, 1) with the 24 bits of a float.
  static float unit(const uint32_t* words) { return static_cast<float>(words[0] >> 8) * 0x1p-24f; }
  /// Uniform in (0, 1); double, because a float would round the largest ones to 1.
  static double open_unit(const uint32_t* words) { return (static_cast<double>(words[0]) + 0.5) * 0x1p-32; }
};

template <>
struct Draw<double> {
  using Compute = double;
  static constexpr int kWords = 2;
  static double unit(const uint32_t* words) { return static_cast<double>(join_words(words) >> 11) * 0x1p-53; }
  static double open_unit(const uint32_t* words) {
    return (static_cast<double>(join_words(words) >> 12) + 0.5) * 0x1p-52;
  }
};

}  // namespace musa::random
