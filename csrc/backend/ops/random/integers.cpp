// random_ in its three forms, and randperm.
#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include "backend/ops/random/fill.h"

namespace musa::random {
namespace {

/// 0 .. range - 1 from 64 bits by the high half of a product: off from uniform by less than range / 2^64, where a
/// remainder of 32 bits would favour small numbers visibly.
inline uint64_t scaled_bits(uint64_t bits, uint64_t range) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * range >> 64);
}

#define MUSA_INTEGER_AND_REAL_TYPES \
  AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16

/// Fills with 0 .. range - 1 (range 0: all 64 bits) plus `base`. A small range takes one word an element: its numbers
/// are off from uniform by less than range / 2^32 <= 2^-16.
template <typename T>
void fill_range(const at::Tensor& host, PhiloxPosition position, uint64_t range, int64_t base) {
  const auto offset = [=](uint64_t drawn) {
    return static_cast<T>(static_cast<int64_t>(drawn + static_cast<uint64_t>(base)));
  };
  write_in_order<T>(host, [&](T* values) {
    if (range != 0 && range <= 1 << 16) {
      fill_values<1>(values, host.numel(), position, [&](const uint32_t* words, T* value, int64_t) {
        *value = offset(words[0] * range >> 32);
      });
    } else {
      fill_values<2>(values, host.numel(), position, [&](const uint32_t* words, T* value, int64_t) {
        *value = offset(range == 0 ? join_words(words) : scaled_bits(join_words(words), range));
      });
    }
  });
}

/// Largest default value of random_ as a count: 0 .. the largest integer up to which the dtype holds every integer.
template <typename T>
uint64_t default_range() {
  if constexpr (std::is_same_v<T, bool>) {
    return 2;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(std::numeric_limits<T>::max()) + 1;  // 0 for uint64: all bits
  } else {
    return (uint64_t{1} << std::numeric_limits<T>::digits) + 1;
  }
}

template <typename RNG>
struct RandomKernel {
  void operator()(at::TensorIteratorBase& iter, const std::optional<at::Generator>& given) {
    const at::Tensor& self = iter.tensor(0);
    const PhiloxPosition position = draw_position(given, self.device());
    CardScope scope(self.device(), "aten::random_");
    const at::Tensor host = scope.written(self);
    AT_DISPATCH_V2(
        host.scalar_type(), "random_kernel_musa",
        AT_WRAP([&] { fill_range<scalar_t>(host, position, default_range<scalar_t>(), 0); }),
        MUSA_INTEGER_AND_REAL_TYPES);
  }
};

template <typename RNG>
struct RandomFromToKernel {
  void operator()(
      at::TensorIteratorBase& iter, uint64_t range, int64_t base, const std::optional<at::Generator>& given) {
    const at::Tensor& self = iter.tensor(0);
    const PhiloxPosition position = draw_position(given, self.device());
    CardScope scope(self.device(), "aten::random_");
    const at::Tensor host = scope.written(self);
    AT_DISPATCH_V2(
        host.scalar_type(), "random_from_to_kernel_musa",
        AT_WRAP([&] { fill_range<scalar_t>(host, position, range, base); }), MUSA_INTEGER_AND_REAL_TYPES);
  }

  /// All of int64's range.
  void operator()(at::TensorIteratorBase& iter, const std::optional<at::Generator>& given) {
    const at::ScalarType type = iter.tensor(0).scalar_type();
    TORCH_CHECK(
        type == at::kLong || type == at::kDouble || type == at::kFloat || type == at::kBFloat16,
        "random_full_64_bits_range_kernel_musa handles only int64, double, float and bfloat16");
    (*this)(iter, 0, 0, given);
  }
};

at::Tensor& random_(at::Tensor& self, std::optional<at::Generator> given) {
  return at::native::templates::random_impl<RandomKernel, MusaGenerator>(self, std::move(given));
}

at::Tensor& random_from(at::Tensor& self, int64_t from, std::optional<int64_t> to, std::optional<at::Generator> given) {
  return at::native::templates::random_from_to_impl<RandomFromToKernel, MusaGenerator>(
      self, from, to, std::move(given));
}

at::Tensor& random_to(at::Tensor& self, int64_t to, std::optional<at::Generator> given) {
  return random_from(self, 0, to, std::move(given));
}

/// Fisher and Yates' shuffle; step i draws from block i, so the permutation is a function of (seed, offset, n).
template <typename T>
void shuffle(T* values, int64_t count, PhiloxPosition position) {
  constexpr int64_t kBatch = 128;
  std::array<uint32_t, 2 * kBatch> words;
  for (int64_t first = 0; first < count; first += kBatch) {
    const int64_t made = std::min(kBatch, count - first);
    philox_words(position, static_cast<uint64_t>(first / 2), (made + 1) / 2, words.data());
    for (int64_t step = 0; step < made; ++step) {
      const int64_t index = first + step;
      const auto other =
          static_cast<int64_t>(scaled_bits(join_words(words.data() + 2 * step), static_cast<uint64_t>(index) + 1));
      values[index] = values[other];
      values[other] = static_cast<T>(index);
    }
  }
}

at::Tensor& randperm_out(int64_t n, std::optional<at::Generator> given, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(
      !given.has_value() || !given->defined() || given->device() == out.device(), "Expected a '", out.device(),
      "' generator device but found '", given->device(), "'");
  // Checked on a CPU tensor of the same dtype: the check makes a scalar that nobody needs on the card.
  at::native::check_supported_max_int_with_precision(n, at::empty({0}, out.options().device(at::kCPU)));
  out.resize_({n});
  if (n == 0) {
    return out;
  }
  const PhiloxPosition position = draw_position(given, out.device());
  CardScope scope(out.device(), "aten::randperm");
  const at::Tensor host = scope.written(out);
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, host.scalar_type(), "randperm_musa", [&] {
    write_in_order<scalar_t>(host, [&](scalar_t* values) { shuffle(values, n, position); });
  });
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("random_", random_);
  m.impl("random_.from", random_from);
  m.impl("random_.to", random_to);
  m.impl("randperm.generator_out", randperm_out);
}

}  // namespace musa::random
