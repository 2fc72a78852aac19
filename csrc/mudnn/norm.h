// Normalisation of rows: layer norm and RMS norm, with what models put directly before and behind the latter.
#pragma once

#include "mudnn/parallel.h"
#include "mudnn/rows.h"
#include "mudnn/types.h"

namespace mudnn {

enum class GateKind : uint8_t { kNone, kSilu, kSigmoid };

/// `rows` rows of `columns` elements. Optional pointers may be null.
struct NormProblem {
  Dtype dtype;         // of x, residual, gate, sum and out
  Dtype weight_dtype;  // of weight and bias: dtype or float32
  int64_t rows;
  int64_t columns;
  ConstRows x;
  ConstRows residual{};   // optional: x + residual, rounded to dtype, is what is normalised
  Rows sum{};             // of x + residual; may lie where residual or x lies
  const void* weight = nullptr;   // optional
  float weight_offset = 0;  // added to each weight
  const void* bias = nullptr;     // optional, layer norm only
  GateKind gate_kind = GateKind::kNone;   // RMS norm only
  bool gate_first = false;      // x * activation(gate) is normalised, else the normalised row is multiplied by it
  ConstRows gate{};
  double eps;
  Rows out;  // may lie where x lies
  Dtype statistics_dtype = Dtype::kFloat32;
  void* mean = nullptr;  // optional, one for each row
  void* rstd = nullptr;  // optional, one for each row
};

/// out = (x - mean) * rstd * weight + bias with rstd = 1 / sqrt(variance + eps).
void layer_norm(const NormProblem& problem, const Parallel& parallel);
/// out = x * rstd * (weight + offset) with rstd = 1 / sqrt(mean of squares + eps).
void rms_norm(const NormProblem& problem, const Parallel& parallel);

struct RmsNormBackwardProblem {
  Dtype dtype;         // of grad, x, grad_x
  Dtype weight_dtype;  // of weight, grad_weight
  int64_t rows;
  int64_t columns;
  const void* grad;  // rows are contiguous
  const void* x;
  const float* rstd;
  const void* weight;  // optional
  void* grad_x;        // optional
  void* grad_weight;   // optional
  float* partial;      // [rms_norm_partials(rows), columns] when grad_weight is wanted
};
/// Rows of the sums that are kept while the gradient of the weight is summed; depends on `rows` alone.
int64_t rms_norm_partials(int64_t rows);
/// Gradients of rms_norm without offset: n = x * rstd, grad_x = rstd * (grad * weight - n * mean(grad * weight * n)),
/// grad_weight = sum over the rows of grad * n.
void rms_norm_backward(const RmsNormBackwardProblem& problem, const Parallel& parallel);

struct NormKernels {
  void (*layer_norm)(const NormProblem& problem, int64_t begin, int64_t end);
  void (*rms_norm)(const NormProblem& problem, int64_t begin, int64_t end);
  /// Rows begin .. end; adds their part of grad_weight up in `partial` [columns].
  void (*rms_norm_backward)(const RmsNormBackwardProblem& problem, int64_t begin, int64_t end, float* partial);
  /// Columns begin .. end of grad_weight from the partial sums.
  void (*rms_norm_weight)(const RmsNormBackwardProblem& problem, int64_t begin, int64_t end);
};

}  // namespace mudnn
