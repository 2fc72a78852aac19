// The random generator of a card: counter-based Philox, state = (seed, offset), 16 bytes as CUDA's.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace musa {

/// Position in a card's random sequence: 2^64 offsets of 4 x 32 random bits for each of 2^64 subsequences.
struct PhiloxPosition {
  uint64_t seed;
  uint64_t offset;
};

class MusaGenerator final : public c10::GeneratorImpl {
 public:
  explicit MusaGenerator(c10::DeviceIndex device);

  /// Reserves `count` offsets and returns where they begin. Call with the mutex held.
  PhiloxPosition reserve(uint64_t count);
  /// Where the next number comes from, and going there in the same sequence: whether a capture is under way or not.
  PhiloxPosition position() const;
  void move_to(uint64_t offset);
  /// Whether both draw from one state, as graphsafe_get_state hands it out.
  bool shares_state(const MusaGenerator& other) const { return state_ == other.state_; }

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  static c10::DeviceType device_type();

 private:
  struct State;
  MusaGenerator* clone_impl() const override;
  std::shared_ptr<State> state_;
};

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator make_generator(c10::DeviceIndex device);

/// The generator a random op on `device` uses: the given one (checked: type and device), else the card's default.
MusaGenerator* generator_for(const std::optional<at::Generator>& given, c10::Device device);

/// A CPU generator at a position of the card's sequence, for CPU kernels that sample by rejection.
at::Generator cpu_generator_at(PhiloxPosition position);

}  // namespace musa
