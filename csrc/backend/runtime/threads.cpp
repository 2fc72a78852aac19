#include "backend/runtime/threads.h"

#include <ATen/Parallel.h>
#include <c10/util/thread_name.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace musa {
namespace {
constexpr const char* kEngineThreadPrefix = "pt_autog";
}
}  // namespace musa

namespace musa::detail {

thread_local ThreadKind thread_kind = ThreadKind::kUnknown;

namespace {

/// The engine names its workers pt_autograd_<n>; nothing else tells them from a user's thread.
bool named_by_the_engine() { return c10::getThreadName().rfind(kEngineThreadPrefix, 0) == 0; }

}  // namespace

void sync_autograd_thread() {
  if (thread_kind == ThreadKind::kUnknown) {
    thread_kind = named_by_the_engine() ? ThreadKind::kAutograd : ThreadKind::kOther;
    if (thread_kind == ThreadKind::kOther) {
      return;
    }
  }
  thread_local int last_task = -1;
  const int task = torch::autograd::get_current_graph_task_id();
  if (task != last_task) {
    last_task = task;
    at::init_num_threads();  // copies the process's setting to this thread
  }
}

}  // namespace musa::detail

namespace musa {

namespace {

const pid_t loading_process = getpid();

bool engine_threads_left() {
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream comm(task.path() / "comm");
    std::string name;
    if (std::getline(comm, name) && name.rfind(kEngineThreadPrefix, 0) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

void stop_autograd_threads() {
  if (getpid() != loading_process || !engine_threads_left()) {
    return;
  }
  torch::autograd::Engine::get_default_engine().stop();
  // The engine counts a thread as ended before that thread has taken the GIL for the last time.
  constexpr auto kLongest = std::chrono::seconds(5);
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  while (engine_threads_left() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace musa
