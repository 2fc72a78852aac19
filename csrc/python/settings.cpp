// The settings in force: every environment variable of the project with what it accepts.
#include <torch/csrc/Exceptions.h>

#include "backend/runtime/check.h"
#include "musart/musart_sim.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

py::list settings() {
  py::list result;
  for (int i = 0; i < musaSimSettingCount(); ++i) {
    const musaSimSetting* setting = musaSimSettingAt(i);
    py::dict entry;
    entry["name"] = setting->name;
    entry["accepted"] = setting->accepted;
    entry["default"] = setting->default_value;
    entry["about"] = setting->about;
    entry["value"] = musaSimSettingValue(setting->name);
    result.append(std::move(entry));
  }
  return result;
}

void check_settings() { MUSA_CHECK(musaSimCheckSettings()); }

}  // namespace

void bind_settings(py::module_& module) {
  module.def("_settings", settings);
  module.def("_check_settings", torch::wrap_pybind_function(check_settings));
}

}  // namespace musa::python
