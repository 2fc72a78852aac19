"""A simulated Moore Threads musa device for PyTorch.

Importing this package makes `device="musa"` and `torch.musa` exist; `import torch` alone does the same through the
entry point group `torch.backends`, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0.
"""

import os
import sys

__version__ = "0.1.0"


def _torch_is_being_imported() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and getattr(torch.__spec__, "_initializing", False)


def _is_the_command() -> bool:
    """`musa-sim` registers when it needs the device: it must be able to say why the device can't be had."""
    return os.path.basename(sys.argv[0] if sys.argv else "") == "musa-sim" or "torch_musa_sim.cli" in sys.orig_argv


# While torch is being imported its entry point (see _autoload) registers, and turns errors into warnings.
if not _torch_is_being_imported() and not _is_the_command():
    from torch_musa_sim import _register

    _register.register()
