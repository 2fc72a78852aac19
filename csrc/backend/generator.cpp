#include "backend/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstring>
#include <limits>

#include "backend/graph/sequence.h"
#include "backend/ops/random/philox.h"
#include "backend/runtime/device.h"

namespace musa {
namespace {

constexpr size_t kSeedBytes = sizeof(uint64_t);
constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

// What would be frozen into a graph, or tell a number that only a replay knows.
void refuse_in_capture(const MusaGenerator& generator, const char* call) {
  TORCH_CHECK(
      !graph::is_captured(generator), "Cannot call MUSAGeneratorImpl::", call,
      " during MUSA graph capture. Do so before the capture begins; get_state and set_state may be captured.");
}

}  // namespace

/// Shared between generators that graphsafe_get_state hands out, so that a recorded graph and its caller advance
/// the same sequence.
struct MusaGenerator::State {
  uint64_t seed = c10::default_rng_seed_val;
  std::atomic<uint64_t> offset = 0;  // generators that share a state have a mutex each
};

MusaGenerator::MusaGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kMusa, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      state_(std::make_shared<State>()) {}

c10::DeviceType MusaGenerator::device_type() { return kMusa; }

PhiloxPosition MusaGenerator::reserve(uint64_t count) {
  return {state_->seed, state_->offset.fetch_add((count + 3) / 4 * 4)};
}

PhiloxPosition MusaGenerator::position() const { return {state_->seed, state_->offset}; }

void MusaGenerator::move_to(uint64_t offset) { state_->offset = offset; }

void MusaGenerator::set_current_seed(uint64_t seed) {
  if (graph::is_captured(*this)) {
    TORCH_CHECK(
        seed == state_->seed,
        "MUSAGeneratorImpl::set_current_seed can be called during stream capture only if new seed is the same as the "
        "original seed.");
    return;
  }
  state_->seed = seed;
  state_->offset = 0;
}

void MusaGenerator::set_offset(uint64_t offset) {
  refuse_in_capture(*this, "set_offset");
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4, got ", offset);
  state_->offset = offset;
}

uint64_t MusaGenerator::get_offset() const {
  refuse_in_capture(*this, "get_offset");
  return state_->offset;
}

uint64_t MusaGenerator::current_seed() const { return state_->seed; }

uint64_t MusaGenerator::seed() {
  refuse_in_capture(*this, "seed");
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
  const uint64_t offset = graph::mark_sequence(*this).value_or(state_->offset);
  std::memcpy(data + kSeedBytes, &offset, kStateBytes - kSeedBytes);
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
  if (!graph::return_to_mark(*this, offset)) {
    set_offset(offset);
  }
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
  copy->state_->seed = state_->seed;
  copy->move_to(state_->offset);
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
  const at::Generator made = at::make_generator<MusaGenerator>(resolve_device(device));
  TORCH_CHECK(
      !graph::is_captured(*made.get<MusaGenerator>()),
      "Cannot construct a new MUSAGeneratorImpl during MUSA graph capture. Make it before the capture begins.");
  return made;
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
