"""A simulated Moore Threads musa device for PyTorch.

Importing this package makes `device="musa"` and `torch.musa` exist; `import torch` alone does the same through the
entry point group `torch.backends`, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0.
"""

import sys

__version__ = "0.1.0"


def _torch_is_being_imported() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and getattr(torch.__spec__, "_initializing", False)


# While torch is being imported its entry point (see _autoload) registers, and turns errors into warnings.
if not _torch_is_being_imported():
    from torch_musa_sim import _register

    _register.register()
