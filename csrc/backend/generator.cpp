#include "backend/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstring>
#include <limits>

#include "backend/ops/random/philox.h"
#include "backend/runtime/device.h"

namespace musa {
namespace {

constexpr size_t kSeedBytes = sizeof(uint64_t);
constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

}  // namespace

/// Shared between generators that graphsafe_get_state hands out, so that a recorded graph and its caller advance
/// the same sequence.
struct MusaGenerator::State {
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;
};

MusaGenerator::MusaGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kMusa, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::make_shared<State>()) {}

c10::DeviceType MusaGenerator::device_type() { return kMusa; }

PhiloxPosition MusaGenerator::reserve(uint64_t count) {
  const PhiloxPosition begin{state_->seed, state_->offset};
  state_->offset += (count + 3) / 4 * 4;
  return begin;
}

void MusaGenerator::set_current_seed(uint64_t seed) {
  state_->seed = seed;
  state_->offset = 0;
}

void MusaGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4, got ", offset);
  state_->offset = offset;
}

uint64_t MusaGenerator::get_offset() const { return state_->offset; }

uint64_t MusaGenerator::current_seed() const { return state_->seed; }

uint64_t MusaGenerator::seed() {
  // The 53-bit form, as on other accelerators, so that a seed survives a trip through a Python float.
  const uint64_t seed = c10::detail::getNonDeterministicRandom(true);
  set_current_seed(seed);
  return seed;
}

c10::intrusive_ptr<c10::TensorImpl> MusaGenerator::get_state() const {
  // Not at::empty: no mode or key of the caller (a fake tensor mode, a card's scope) may reach the state.
  at::Tensor bytes = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte);
  uint8_t* data = bytes.mutable_data_ptr<uint8_t>();
  std::memcpy(data, &state_->seed, kSeedBytes);
  std::memcpy(data + kSeedBytes, &state_->offset, kStateBytes - kSeedBytes);
  return bytes.getIntrusivePtr();
}

void MusaGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  const size_t bytes = static_cast<size_t>(state.numel());
  TORCH_CHECK(
      bytes == kStateBytes || bytes == kSeedBytes, "RNG state is wrong size: a musa generator's state is ", kStateBytes,
      " bytes (seed, offset) or ", kSeedBytes, " bytes (seed), got ", bytes);
  const uint8_t* data = static_cast<const uint8_t*>(state.data());
  uint64_t seed = 0;
  uint64_t offset = 0;
  std::memcpy(&seed, data, kSeedBytes);
  if (bytes == kStateBytes) {
    std::memcpy(&offset, data + kSeedBytes, kStateBytes - kSeedBytes);
  }
  TORCH_CHECK(
      offset % 4 == 0, "RNG state is malformed: its offset (bytes 8 to 16) must be a multiple of 4, got ", offset);
  set_current_seed(seed);
  set_offset(offset);
}

void MusaGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  TORCH_CHECK(
      state && state->device().type() == kMusa, "Expected a '", kMusa, "' generator as the state of a '", kMusa,
      "' generator", state ? c10::str(" but found one on '", state->device(), "'") : std::string(" but found none"));
  state_ = static_cast<const MusaGenerator&>(*state).state_;
}

c10::intrusive_ptr<c10::GeneratorImpl> MusaGenerator::graphsafe_get_state() const {
  auto same = c10::make_intrusive<MusaGenerator>(device().index());
  same->state_ = state_;
  return same;
}

MusaGenerator* MusaGenerator::clone_impl() const {
  auto* copy = new MusaGenerator(device().index());
  *copy->state_ = *state_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  struct Slot {
    std::once_flag once;
    at::Generator generator;
  };
  using Slots = std::array<Slot, std::numeric_limits<c10::DeviceIndex>::max() + 1>;
  // Never destroyed: threads may still draw while the process exits.
  static Slots& slots = *new Slots();
  const c10::DeviceIndex index = resolve_device(device);
  Slot& slot = slots[static_cast<size_t>(index)];
  std::call_once(slot.once, [&] { slot.generator = at::make_generator<MusaGenerator>(index); });
  return slot.generator;
}

at::Generator make_generator(c10::DeviceIndex device) {
  return at::make_generator<MusaGenerator>(resolve_device(device));
}

MusaGenerator* generator_for(const std::optional<at::Generator>& given, c10::Device device) {
  // A generator takes part in dispatch: with one of ours, an operator on cpu tensors arrives here as well.
  TORCH_CHECK(
      device.type() == kMusa, "Expected a '", device.type(), "' device type for generator but found '", kMusa, "'");
  if (!given.has_value() || !given->defined()) {
    return default_generator(device.index()).get<MusaGenerator>();
  }
  auto* generator = at::check_generator<MusaGenerator>(given);
  TORCH_CHECK(
      generator->device() == device, "Expected a generator on '", device, "' but found one on '", generator->device(),
      "'; make it with torch.Generator(\"", device, "\")");
  return generator;
}

at::Generator cpu_generator_at(PhiloxPosition position) {
  // The CPU's Mersenne twister takes 32 bits of seed: hash the position down to them.
  const random::PhiloxBlock block = random::philox_block(position.seed, position.offset / 4, ~uint64_t{0});
  return at::make_generator<at::CPUGeneratorImpl>(block.words[0]);
}

}  // namespace musa
