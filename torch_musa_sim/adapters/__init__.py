"""What libraries of models are taught about musa when they are imported. Importing this package loads none of them."""

import sys
from types import ModuleType

from torch_musa_sim import _C
from torch_musa_sim._imports import when_imported

_EXPERTS = "transformers.integrations.moe"
_MODELING = "transformers.modeling_utils"
_MASKING = "transformers.masking_utils"


def _on_transformers(_: ModuleType) -> None:
    from torch_musa_sim.adapters import attention, experts

    if _EXPERTS in sys.modules:
        experts.install(sys.modules[_EXPERTS])
    if _MODELING in sys.modules and _MASKING in sys.modules:
        attention.install(sys.modules[_MODELING], sys.modules[_MASKING])


def install() -> None:
    """Leaves word with Python's import system, unless TORCH_MUSA_SIM_TRANSFORMERS=0. To be called once."""
    if next(entry["value"] for entry in _C._settings() if entry["name"] == "TORCH_MUSA_SIM_TRANSFORMERS") == "0":
        return
    # At each of them, as torch may be imported in the middle of the first: by then others have not begun.
    for name in (_EXPERTS, _MASKING, _MODELING):
        module = sys.modules.get(name)
        if module is None:
            when_imported(name, _on_transformers)
        elif not getattr(module.__spec__, "_initializing", False):
            _on_transformers(module)
