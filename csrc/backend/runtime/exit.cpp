#include "backend/runtime/exit.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "backend/runtime/device.h"
#include "musart/musart_sim.h"

namespace musa {
namespace {

/// A step of a backward pass that does nothing. Once a device's thread runs it, the thread has left every earlier pass.
struct Barrier final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*grads*/) override { return {}; }
};

void pass_through_thread_of(c10::DeviceIndex device) {
  const at::Tensor nothing = at::empty({0}, at::TensorOptions().device(c10::Device(kMusa, device)));
  const auto barrier = c10::make_intrusive<Barrier>();
  barrier->add_input_metadata(nothing);
  torch::autograd::Engine::get_default_engine().execute(
      {torch::autograd::Edge(barrier, 0)}, {nothing}, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/true);
}

/// The engine starts its threads at the first backward pass and names them pt_autograd_<n>. A forked child has none.
bool autograd_threads_exist() {
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name.starts_with("pt_autograd")) {
      return true;
    }
  }
  return false;
}

}  // namespace

void settle_autograd_threads() {
  if (musaSimIsInitialized() == 0 || musaSimInBadFork() != 0 || !autograd_threads_exist()) {
    return;
  }
  std::exception_ptr failure;
  // A thread of its own: the barrier must not take along what Python has left in this thread's local state.
  std::thread([&failure] {
    try {
      for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
        pass_through_thread_of(device);
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

}  // namespace musa
