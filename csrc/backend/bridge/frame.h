// What every run of a CPU kernel on card memory has in common, whether its arguments lie on a stack or are typed:
// device checks, views, results, cost.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "backend/bridge/below_autograd.h"
#include "backend/bridge/cost.h"
#include "backend/bridge/launch.h"
#include "backend/bridge/plan.h"
#include "backend/storage.h"

namespace musa {

/// A musa tensor while the CPU kernel sees it as `shown`.
struct Shown {
  at::Tensor original;
  c10::intrusive_ptr<c10::TensorImpl> shown;
  c10::StorageImpl* twin;
  bool written;
  bool temporary;  // `shown` is an upcast copy, not a view
};

class Frame {
 public:
  explicit Frame(const Plan& plan) : plan_(plan) {}
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  /// The CPU view of a musa tensor; equal tensors have one view. To be called below autograd. Throws on a second card.
  const c10::intrusive_ptr<c10::TensorImpl>& show_once(at::Tensor tensor, const ArgPlan& argument);

  /// Notes a tensor that isn't on a card: legal or not, it is judged by check_devices, when the card is known.
  void note_foreign(const at::Tensor& tensor, const ArgPlan& argument);

  /// `tensor` as the kernel is to see it: a view, or itself when it is undefined or not on a card.
  at::Tensor show_tensor(const at::Tensor& tensor, const ArgPlan& argument);

  /// After all arguments were shown: settles the card (`device_argument` where no tensor names one), refuses what CUDA
  /// refuses, and prepares the thread.
  void check_devices(c10::DeviceIndex device_argument = -1);

  /// The musa tensor of a result. To be called in the caller's thread state.
  at::Tensor take_tensor(const at::Tensor& result, bool stays_on_cpu = false);

  /// Brings what the kernel did to written arguments' memory and shapes back to the musa tensors.
  void write_back();

  /// Advances clock and counters; waits where CUDA waits.
  void launch();

  bool any_on_card() const { return found_; }
  c10::Device device() const { return device_; }
  musaStream_t stream() const { return launch_.stream(); }
  void add_flops(double flops) { cost_.flops += flops; }
  /// The rule of a kernel of ours, in the place of what shapes and dtypes say.
  void set_cost(const OpCost& cost) {
    cost_.flops = cost.flops;
    fixed_bytes_ = cost.bytes;
  }
  void set_synchronizes() { synchronizes_ = true; }

 protected:
  Shown* find_shown(const c10::TensorImpl* impl);

  const Plan& plan_;
  c10::SmallVector<Shown, 6> shown_;
  bool upcast_ = false;
  c10::ScalarType upcast_from_ = c10::ScalarType::Undefined;
  c10::ScalarType upcast_to_ = c10::ScalarType::Undefined;

 private:
  [[noreturn]] void refuse_devices(c10::Device one, c10::Device other, size_t index) const;
  /// The indices of x[i] and x[i] = v may stay on the CPU, x and v may not.
  bool is_index(const ArgPlan& argument) const { return plan_.has(kIndexes) && argument.index == 1; }
  void note_card(c10::Device device, const ArgPlan& argument);
  void check_foreign() const;
  void write_back(Shown& argument);

  c10::Device device_{c10::DeviceType::PrivateUse1, 0};
  bool found_ = false;
  bool synchronizes_ = false;
  int foreign_ = -1;
  c10::Device foreign_device_{c10::kCPU};
  Launch launch_;
  musaSimCost cost_{};
  double fixed_bytes_ = -1;
  c10::SmallVector<std::pair<const c10::StorageImpl*, c10::Storage>, 1> fresh_;
};

}  // namespace musa
