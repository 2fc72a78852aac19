"""What `import torch` calls, through the entry point group `torch.backends`."""

import sys
import warnings


def autoload() -> None:
    """Makes `device="musa"` exist. Never raises: what is wrong with us must not break `import torch`."""
    package = sys.modules["torch_musa_sim"]
    if getattr(package.__spec__, "_initializing", False):
        return  # `import torch_musa_sim` has imported torch and registers itself when torch is complete
    from torch_musa_sim import _real_package

    real = _real_package.find()
    if real is not None:
        sys.modules.pop("torch_musa_sim", None)
        warnings.warn(f"torch_musa_sim stands aside: {real}.", stacklevel=2)
        return
    try:
        from torch_musa_sim import _register

        _register.register()
    except Exception as error:
        # Forgotten, so that a later `import torch_musa_sim` tries again and raises.
        sys.modules.pop("torch_musa_sim", None)
        warnings.warn(f"device 'musa' isn't available: {error}", stacklevel=2)
