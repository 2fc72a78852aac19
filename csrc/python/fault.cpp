// What happens in Python when host code touches device memory: the runtime's signal handler has printed its line and
// now wants the Python stack. Everything here runs inside that handler.
#include <Python.h>
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <string_view>

#include "musart/musart_sim.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace musa::python {
namespace {

using DumpTraceback = void (*)(int fd, PyThreadState* thread);

// CPython's own async-signal-safe printer, the one that faulthandler uses. Exported by most builds of 3.11 and 3.12.
DumpTraceback dump_traceback = nullptr;
// Elsewhere faulthandler is asked through a signal that it was registered for.
int faulthandler_signal = 0;

void say(std::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) {
    // Nobody is left to tell.
  }
}

void print_python_stack() {
  if (faulthandler_signal != 0) {
    raise(faulthandler_signal);
    return;
  }
  PyThreadState* thread = PyGILState_GetThisThreadState();
  if (thread == nullptr) {
    say("(the thread that did it runs no Python code)\n");
    return;
  }
  dump_traceback(STDERR_FILENO, thread);
}

/// A real-time signal that nobody handles, 0 when all are taken.
int free_signal() {
  for (int signal_number = SIGRTMAX; signal_number > SIGRTMIN; --signal_number) {
    struct sigaction now{};
    if (sigaction(signal_number, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
      return signal_number;
    }
  }
  return 0;
}

}  // namespace

void install_fault_callback() {
  dump_traceback = reinterpret_cast<DumpTraceback>(dlsym(RTLD_DEFAULT, "_Py_DumpTraceback"));
  if (dump_traceback == nullptr) {
    faulthandler_signal = free_signal();
    if (faulthandler_signal == 0) {
      return;
    }
    py::module_::import("faulthandler")
        .attr("register")(
            faulthandler_signal, py::arg("file") = py::int_(STDERR_FILENO), py::arg("all_threads") = false);
  }
  musaSimSetFaultCallback(print_python_stack);
}

}  // namespace musa::python
