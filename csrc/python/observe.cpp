// What management tools show of a card: its state and who uses it, over all processes of the scope.
#include <torch/csrc/Exceptions.h>

#include <vector>

#include "backend/runtime/check.h"
#include "musart/musart_observe.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

int physical(int device) {
  int card = 0;
  MUSA_CHECK(musaSimPhysicalCard(device, &card));
  return card;
}

py::dict card_state(int device) {
  const int card = physical(device);
  musaSimCardInfo info{};
  musaSimCardState state{};
  MUSA_CHECK(musaSimDescribeCard(card, &info));
  MUSA_CHECK(musaSimObserveCard(card, &state));
  py::dict result;
  result["memory_used"] = state.memory_used;
  result["memory_total"] = info.memory;
  result["busy"] = state.busy;
  result["memory_busy"] = state.memory_busy;
  result["power_w"] = state.power_w;
  result["power_limit_w"] = info.power_limit_w;
  result["temperature_c"] = state.temperature_c;
  result["clock_mhz"] = info.clock_mhz;
  result["memory_clock_mhz"] = info.memory_clock_mhz;
  result["processes"] = state.processes;
  return result;
}

py::list card_processes(int device) {
  const int card = physical(device);
  int count = 0;
  MUSA_CHECK(musaSimObserveProcesses(card, nullptr, 0, &count));
  std::vector<musaSimProcess> processes(static_cast<size_t>(count) + 8);  // some may have come meanwhile
  MUSA_CHECK(musaSimObserveProcesses(card, processes.data(), static_cast<int>(processes.size()), &count));
  py::list result;
  for (size_t i = 0; i < std::min(processes.size(), static_cast<size_t>(count)); ++i) {
    py::dict entry;
    entry["pid"] = processes[i].pid;
    entry["memory"] = processes[i].memory;
    entry["busy"] = processes[i].busy;
    entry["command"] = py::reinterpret_steal<py::str>(PyUnicode_DecodeFSDefault(processes[i].command));
    result.append(std::move(entry));
  }
  return result;
}

}  // namespace

// Indices arrive checked: torch_musa_sim.musa._utils refuses what is out of range.
void bind_observe(py::module_& module) {
  module.def("_card_state", torch::wrap_pybind_function(card_state));
  module.def("_card_processes", torch::wrap_pybind_function(card_processes));
}

}  // namespace musa::python
