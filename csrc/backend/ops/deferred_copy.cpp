#include "backend/ops/deferred_copy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "backend/bridge/accesses.h"
#include "backend/bridge/below_autograd.h"
#include "backend/runtime/check.h"
#include "backend/storage.h"

namespace musa {

namespace {

/// The state in which a wait, wherever the program does it, can run CPU kernels.
struct QuietThread {
  BelowAutograd state;
  c10::impl::ExcludeDispatchKeyGuard no_modes{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
  AllocateOnCard on_host{0, nullptr};
};

/// Over the same memory, without keeping it: the copy must not delay the buffer's way back to its allocator, which
/// calls in before it hands the memory out again.
at::Tensor borrow(const at::Tensor& tensor) {
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(), tensor.options());
}

size_t bytes_of(const at::Tensor& contiguous) { return static_cast<size_t>(contiguous.nbytes()); }

/// The same elements as integers: moving a bool or a float may change bits that aren't a value of theirs.
at::Tensor as_integers(const at::Tensor& tensor) {
  const auto type = [&] {
    switch (tensor.element_size()) {
      case 1:
        return at::kByte;
      case 2:
        return at::kShort;
      case 4:
        return at::kInt;
      case 8:
        return at::kLong;
      default:
        return tensor.scalar_type();
    }
  }();
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().dtype(type));
}

void poison(const at::Tensor& target) {
  const at::Tensor elements = as_integers(target);
  const at::Tensor filler = at::empty({}, elements.options());
  std::memset(filler.mutable_data_ptr(), musaSimPoison, bytes_of(filler));
  elements.copy_(filler.expand(target.sizes()));
}

bool is_poisoned(const at::Tensor& target) {
  const at::Tensor flat = as_integers(target).contiguous();
  const auto* bytes = static_cast<const unsigned char*>(flat.const_data_ptr());
  return std::all_of(bytes, bytes + bytes_of(flat), [](unsigned char byte) { return byte == musaSimPoison; });
}

struct ToHost {
  at::Tensor target;   // borrowed
  at::Tensor arriving;

  bool finish(musaSimFinish /*how*/) {
    const bool touched = !is_poisoned(target);
    target.copy_(arriving);
    return touched;
  }
};

struct ToCard {
  at::Tensor target;  // borrowed, as the source
  at::Tensor source;
  at::Tensor seen;  // contiguous

  bool finish(musaSimFinish how) {
    const at::Tensor now = as_integers(source).contiguous();
    const bool touched = std::memcmp(now.const_data_ptr(), seen.const_data_ptr(), bytes_of(now)) != 0;
    if (touched && how == musaSimFinishCopy) {
      target.copy_(source);
    }
    return touched;
  }
};

template <class Copy>
int finish(void* context, musaSimFinish how) {
  const std::unique_ptr<Copy> copy(static_cast<Copy*>(context));
  if (how == musaSimFinishDrop) {
    return 0;
  }
  const QuietThread quiet;
  return copy->finish(how) ? 1 : 0;
}

template <class Copy>
void defer(std::unique_ptr<Copy> copy, musaSimDeferredCopy description, musaStream_t stream) {
  description.finish = &finish<Copy>;
  description.context = copy.get();
  MUSA_CHECK(musaSimDeferCopy(stream, &description));
  (void)copy.release();
}

}  // namespace

bool can_defer(const at::Tensor& target, const at::Tensor& source) {
  return !target.is_conj() && !target.is_neg() && !source.is_conj() && !source.is_neg() && target.numel() > 0;
}

void copy_deferred(
    const at::Tensor& target, const at::Tensor& source, bool to_host, musaStream_t stream, const char* op) {
  const AllocateOnCard on_host(0, nullptr);
  const MemoryRange host = memory_of(*(to_host ? target : source).unsafeGetTensorImpl());
  const MemoryRange device = memory_of(*(to_host ? source : target).unsafeGetTensorImpl());
  const musaSimDeferredCopy description{op,           host.address,    host.bytes, device.address,
                                        device.bytes, to_host ? 1 : 0, nullptr,    nullptr};
  if (to_host) {
    auto copy = std::make_unique<ToHost>(ToHost{borrow(target), at::empty_like(target)});
    copy->arriving.copy_(source);
    poison(target);
    defer(std::move(copy), description, stream);
  } else {
    target.copy_(source);
    const at::Tensor seen = as_integers(source).clone(at::MemoryFormat::Contiguous);
    defer(std::make_unique<ToCard>(ToCard{borrow(target), borrow(source), seen}), description, stream);
  }
}

}  // namespace musa
