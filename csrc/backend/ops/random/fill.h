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

constexpr int64_t kBatchBlocks = 64;
constexpr int64_t kBatchWords = 4 * kBatchBlocks;  // 1 KiB, made at a time

/// Calls `body(block, blocks, words)` in parallel for batches of consecutive blocks that together are `blocks` of the
/// operator; `words` has room for kBatchWords and holds 4 per block.
template <typename Body>
void for_batches(int64_t blocks, PhiloxPosition position, const Body& body) {
  for_ranges(blocks, 4096, [&](int64_t begin, int64_t end) {
    std::array<uint32_t, kBatchWords> words{};
    for (int64_t block = begin; block < end; block += kBatchBlocks) {
      const int64_t made = std::min(kBatchBlocks, end - block);
      philox_words(position, static_cast<uint64_t>(block), made, words.data());
      body(block, made, words.data());
    }
  });
}

/// Fills `values[0 .. count)`: `transform(const uint32_t* words, T* value, int64_t index)` makes one value of kWords
/// words (1, 2 or 4). Calls are independent of each other: the loop over them is vectorised where the transform allows.
template <int kWords, typename T, typename Transform>
void fill_values(T* values, int64_t count, PhiloxPosition position, const Transform& transform) {
  static_assert(4 % kWords == 0);
  constexpr int64_t kBlockValues = 4 / kWords;
  const int64_t blocks = (count + kBlockValues - 1) / kBlockValues;
  for_batches(blocks, position, [&](int64_t block, int64_t made, const uint32_t* words) {
    const int64_t first = block * kBlockValues;
    const int64_t here = std::min(made * kBlockValues, count - first);
#pragma omp simd
    for (int64_t offset = 0; offset < here; ++offset) {
      transform(words + offset * kWords, values + first + offset, first + offset);
    }
  });
}

/// Says of a word whether it lies in a part of probability `p` in [0, 1], to 32 bits; exact for 0 and 1.
class WordBelow {
 public:
  explicit WordBelow(double p) {
    const auto threshold = static_cast<uint64_t>(std::llround(p * 0x1p32));
    threshold_ = static_cast<uint32_t>(threshold);
    always_ = threshold >> 32 != 0;
  }
  bool operator()(uint32_t word) const { return (word < threshold_) | always_; }

 private:
  uint32_t threshold_;
  bool always_;
};

inline uint64_t join_words(const uint32_t* words) { return words[0] | static_cast<uint64_t>(words[1]) << 32; }

/// How a floating type is drawn: in which type it is computed and how many words a uniform number takes.
template <typename T>
struct Draw {
  using Compute = float;
  static constexpr int kWords = 1;
  /// Uniform in [0, 1) with the 24 bits of a float.
  static float unit(const uint32_t* words) {
    return static_cast<float>(static_cast<int32_t>(words[0] >> 8)) * 0x1p-24f;  // signed: one instruction
  }
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
