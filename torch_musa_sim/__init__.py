"""A simulated Moore Threads musa device for PyTorch.

Importing this package makes `device="musa"` and `torch.musa` exist; `import torch` alone does the same through the
entry point group `torch.backends`, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0.
"""

import os
import sys

__version__ = "0.1.0"

# The console scripts of pyproject.toml; the ones that need the device register it themselves.
_TOOLS = frozenset({"musa-sim", "mthreads-gmi", "musaInfo", "musa_version_query", "musa_toolkits_version"})


def _torch_is_being_imported() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and getattr(torch.__spec__, "_initializing", False)


def _is_command_line_tool() -> bool:
    """Tools start without torch, which takes a second, and must say what is wrong when the device can't be had."""
    program = (getattr(sys, "argv", None) or [""])[0]
    if program == "-m":  # the module isn't found yet: python -m torch_musa_sim.cli.smi
        asked = " ".join(sys.orig_argv)
        return "-m torch_musa_sim.cli" in asked or "-m torch_musa_sim.collect_env" in asked
    return os.path.basename(program) in _TOOLS


# While torch is being imported its entry point (see _autoload) registers, and turns errors into warnings.
if not _torch_is_being_imported() and not _is_command_line_tool():
    from torch_musa_sim import _real_package

    _real_package.refuse()  # before torch is touched
    from torch_musa_sim import _register

    _register.register()
