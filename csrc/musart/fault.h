// One line before the process dies of touching device memory from host code.
#pragma once

namespace musart {

// For SIGSEGV and SIGBUS; what was installed before runs afterwards.
void install_fault_handler();

}  // namespace musart
