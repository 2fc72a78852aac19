// The thread state in which a CPU kernel runs on behalf of the device.
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace musa {

/// As c10::InferenceMode (no autograd, no version counters), and without the caller's autocast: what a kernel calls
/// inside must not be cast again. A few nanoseconds.
class BelowAutograd {
 public:
  BelowAutograd()
      : state_(c10::AutogradState::get_tls_state()), tls_(&c10::impl::raw_local_dispatch_key_set), keys_(*tls_) {
    grad_ = state_.get_grad_mode();
    forward_grad_ = state_.get_fw_grad_mode();
    inference_ = state_.get_inference_mode();
    enter();
  }
  ~BelowAutograd() { leave(); }
  BelowAutograd(const BelowAutograd&) = delete;
  BelowAutograd& operator=(const BelowAutograd&) = delete;

  /// Runs `make` in the caller's state, so that tensors made there belong to it.
  template <class F>
  auto outside(F&& make) {
    struct Resume {
      BelowAutograd* self;
      ~Resume() { self->enter(); }
    } resume{this};
    leave();
    return make();
  }

 private:
  void enter() {
    state_.set_grad_mode(false);
    state_.set_fw_grad_mode(false);
    state_.set_inference_mode(true);
    c10::impl::PODLocalDispatchKeySet below = keys_;
    below.set_included(keys_.included().remove(c10::DispatchKey::ADInplaceOrView));
    below.set_excluded(keys_.excluded() | c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset);
    *tls_ = below;
  }
  void leave() {
    *tls_ = keys_;
    state_.set_grad_mode(grad_);
    state_.set_fw_grad_mode(forward_grad_);
    state_.set_inference_mode(inference_);
  }

  c10::AutogradState& state_;
  c10::impl::PODLocalDispatchKeySet* tls_;  // looked up once: each access is a call into the loader
  c10::impl::PODLocalDispatchKeySet keys_;
  bool grad_;
  bool forward_grad_;
  bool inference_;
};

}  // namespace musa
