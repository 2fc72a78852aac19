// multinomial: categories drawn with probability proportional to their weight, with or without replacement.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <numeric>
#include <vector>

#include "backend/ops/devices.h"
#include "backend/ops/random/fill.h"
#include "backend/runtime/check.h"
#include "backend/runtime/stream.h"
#include "backend/runtime/sync_debug.h"

namespace musa::random {
namespace {

struct Shape {
  int64_t rows;
  int64_t categories;
  int64_t samples;
};

/// Running sums of a row's weights; checks them. `strict_text`: the wording of the path without replacement.
void accumulate(const double* weights, int64_t count, bool strict_text, std::vector<double>& sums) {
  sums.resize(static_cast<size_t>(count));
  double total = 0;
  for (int64_t category = 0; category < count; ++category) {
    const double weight = weights[category];
    if (!(weight >= 0 && weight < std::numeric_limits<double>::infinity())) {
      TORCH_CHECK(!strict_text, "probability tensor contains either `inf`, `nan` or element < 0");
      TORCH_CHECK(weight >= 0, "invalid multinomial distribution (encountering probability entry < 0)");
      TORCH_CHECK(false, "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
    }
    total += weight;
    sums[static_cast<size_t>(category)] = total;
  }
  TORCH_CHECK(total > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
}

/// Inversion of the running sums, one 53-bit number per sample.
void draw_with_replacement(
    const double* weights, const Shape& shape, bool strict_text, PhiloxPosition position, int64_t* result) {
  for_ranges(shape.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> sums;
    for (int64_t row = begin; row < end; ++row) {
      accumulate(weights + row * shape.categories, shape.categories, strict_text, sums);
      for (int64_t sample = 0; sample < shape.samples; ++sample) {
        const int64_t index = row * shape.samples + sample;
        const PhiloxBlock block = philox_block(position.seed, position.offset / 4, static_cast<uint64_t>(index / 2));
        const double target = Draw<double>::unit(block.words + 2 * (index % 2)) * sums.back();
        auto found = std::upper_bound(sums.begin(), sums.end(), target);
        if (found == sums.end()) {  // the product rounded up to the total: the last category that has any weight
          found = std::lower_bound(sums.begin(), sums.end(), sums.back());
        }
        result[index] = found - sums.begin();
      }
    }
  });
}

/// The first `samples` arrivals of a race in which category c arrives after an exponential time of rate weights[c]:
/// the order of arrival has the distribution of drawing one after the other without putting back.
void draw_without_replacement(const double* weights, const Shape& shape, PhiloxPosition position, int64_t* result) {
  const int64_t count = shape.rows * shape.categories;
  std::vector<double> arrivals(static_cast<size_t>(count));
  fill_values<2>(arrivals.data(), count, position, [&](const uint32_t* words, double* arrival, int64_t index) {
    *arrival = -std::log(Draw<double>::open_unit(words)) / weights[index];
  });
  for_ranges(shape.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> sums;
    std::vector<int64_t> order(static_cast<size_t>(shape.categories));
    for (int64_t row = begin; row < end; ++row) {
      accumulate(weights + row * shape.categories, shape.categories, true, sums);
      const double* times = arrivals.data() + row * shape.categories;
      std::iota(order.begin(), order.end(), int64_t{0});
      std::partial_sort(order.begin(), order.begin() + shape.samples, order.end(), [&](int64_t a, int64_t b) {
        return times[a] < times[b] || (times[a] == times[b] && a < b);
      });
      std::copy_n(order.begin(), shape.samples, result + row * shape.samples);
    }
  });
}

at::Tensor& multinomial_out(
    const at::Tensor& self, int64_t samples, bool replacement, std::optional<at::Generator> given, at::Tensor& out) {
  constexpr int64_t kMaxCategories = 1 << 24;
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(out.scalar_type() == at::kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  const Shape shape{self.dim() == 1 ? 1 : self.size(0), self.size(-1), samples};
  TORCH_CHECK(
      replacement || samples <= shape.categories,
      "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(shape.categories <= kMaxCategories, "number of categories cannot exceed 2^24");
  if (self.dim() == 1) {
    out.resize_({samples});
  } else {
    out.resize_({shape.rows, samples});
  }
  if (out.numel() == 0) {
    return out;
  }
  TORCH_CHECK(shape.categories > 0, "cannot sample from prob_dist with no categories (its last dimension is 0)");
  {
    const PhiloxPosition position = draw_position(given, self.device());
    CardScope scope(self.device(), "aten::multinomial");
    const at::Tensor weights = scope.view(self).to(at::kDouble).contiguous();
    const at::Tensor host = scope.written(out);
    write_in_order<int64_t>(host, [&](int64_t* result) {
      const double* row = weights.const_data_ptr<double>();
      if (replacement || samples == 1) {
        draw_with_replacement(row, shape, samples == 1, position, result);
      } else {
        draw_without_replacement(row, shape, position, result);
      }
    });
  }
  if (!replacement || samples == 1) {
    // Hardware reads the checks of this path back to the host.
    note_synchronization();
    MUSA_CHECK(musaStreamSynchronize(current_native_stream(self.device().index())));
  }
  return out;
}

at::Tensor multinomial(const at::Tensor& self, int64_t samples, bool replacement, std::optional<at::Generator> given) {
  at::Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  return multinomial_out(self, samples, replacement, std::move(given), out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("multinomial", multinomial);
  m.impl("multinomial.out", multinomial_out);
}

}  // namespace musa::random
