#include "backend/native/gemm.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "backend/native/product_variants.h"
#include "backend/native/tensors.h"
#include "mudnn/gemm.h"

namespace musa {
namespace {

using mudnn::GemmProblem;

struct Shape {
  int64_t batch;
  int64_t m;
  int64_t n;
  int64_t k;
};

Shape shape_of(const Product& product) {
  const int64_t dim = product.a.dim();
  return {dim == 3 ? product.a.size(0) : 1, product.a.size(dim - 2), product.b.size(dim - 1), product.a.size(dim - 1)};
}

c10::SmallVector<int64_t, 3> result_sizes(const Product& product) {
  const Shape shape = shape_of(product);
  if (product.a.dim() == 3) {
    return {shape.batch, shape.m, shape.n};
  }
  return {shape.m, shape.n};
}

// Strides of the last two dimensions; that of a single row or column is as good as 1.
void last_strides(const at::Tensor& tensor, int64_t* row, int64_t* column) {
  const int64_t dim = tensor.dim();
  *row = tensor.stride(dim - 2);
  *column = tensor.size(dim - 1) == 1 ? 1 : tensor.stride(dim - 1);
  if (tensor.size(dim - 2) == 1) {
    *row = *column == 1 ? tensor.size(dim - 1) : 1;
  }
}

void set_addend(const Product& product, const Shape& shape, GemmProblem* problem) {
  const at::Tensor& addend = *product.addend;
  const auto stride_of = [&](int64_t from_last, int64_t size) {
    const int64_t dim = addend.dim() - from_last;
    return dim >= 0 && addend.size(dim) == size && size != 1 ? addend.stride(dim) : 0;
  };
  problem->beta = product.beta;
  problem->addend = addend.const_data_ptr();
  problem->addend_dtype = *mudnn_dtype(addend.scalar_type());
  problem->addend_column = stride_of(1, shape.n);
  problem->addend_row = stride_of(2, shape.m);
  problem->addend_batch = stride_of(3, shape.batch);
}

GemmProblem problem_of(const Product& product, const at::Tensor& out) {
  const Shape shape = shape_of(product);
  GemmProblem problem{};
  problem.dtype = *mudnn_dtype(product.a.scalar_type());
  problem.out_dtype = *mudnn_dtype(out.scalar_type());
  problem.batch = shape.batch;
  problem.m = shape.m;
  problem.n = shape.n;
  problem.k = shape.k;
  problem.a = product.a.const_data_ptr();
  problem.b = product.b.const_data_ptr();
  problem.c = out.mutable_data_ptr();
  last_strides(product.a, &problem.a_row, &problem.a_column);
  last_strides(product.b, &problem.b_row, &problem.b_column);
  last_strides(out, &problem.c_row, &problem.c_column);
  if (product.a.dim() == 3) {
    problem.a_batch = product.a.stride(0);
    problem.b_batch = product.b.stride(0);
    problem.c_batch = out.stride(0);
  }
  // Without any depth there is nothing to scale, not even by infinity.
  problem.alpha = shape.k == 0 ? 0.0f : product.alpha;
  if (product.beta != 0) {
    set_addend(product, shape, &problem);
  }
  return problem;
}

bool shares_memory(const at::Tensor& one, const at::Tensor& other) {
  return one.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() ||
      one.storage().data() == other.storage().data();
}

bool is_same_view(const at::Tensor& one, const at::Tensor& other) {
  return one.const_data_ptr() == other.const_data_ptr() && one.sizes() == other.sizes() &&
      one.strides() == other.strides() && one.scalar_type() == other.scalar_type();
}

void run(const Product& product, const at::Tensor& out) { run_product(problem_of(product, out)); }

}  // namespace

bool can_multiply(const Product& product, c10::ScalarType out_dtype) {
  const at::Tensor& a = product.a;
  const at::Tensor& b = product.b;
  const int64_t dim = a.dim();
  if ((dim != 2 && dim != 3) || b.dim() != dim || a.scalar_type() != b.scalar_type() ||
      !mudnn_dtype(a.scalar_type()).has_value() || !mudnn_dtype(out_dtype).has_value() ||
      a.size(dim - 1) != b.size(dim - 2) || (dim == 3 && a.size(0) != b.size(0)) || a.is_sparse() || b.is_sparse()) {
    return false;
  }
  if (product.addend == nullptr) {
    return true;
  }
  const at::Tensor& addend = *product.addend;
  const Shape shape = shape_of(product);
  const int64_t sizes[] = {shape.n, shape.m, shape.batch};
  if (addend.dim() > dim || !mudnn_dtype(addend.scalar_type()).has_value()) {
    return false;
  }
  for (int64_t i = 0; i < addend.dim(); ++i) {
    const int64_t size = addend.size(addend.dim() - 1 - i);
    if (size != 1 && size != sizes[i]) {
      return false;
    }
  }
  return true;
}

at::Tensor multiply(const Product& product, c10::ScalarType out_dtype) {
  at::Tensor out = at::detail::empty_cpu(result_sizes(product), product.a.options().dtype(out_dtype));
  run(product, out);
  return out;
}

void multiply_into(const Product& product, const at::Tensor& out) {
  const bool overlaps = shares_memory(out, product.a) || shares_memory(out, product.b) ||
      (product.beta != 0 && product.addend != nullptr && shares_memory(out, *product.addend) &&
       !is_same_view(out, *product.addend));
  if (overlaps) {
    out.copy_(multiply(product, out.scalar_type()));
  } else {
    run(product, out);
  }
}

}  // namespace musa
