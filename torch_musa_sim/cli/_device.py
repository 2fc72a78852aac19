"""Makes the device exist for a sub-command that needs it."""

import importlib
import warnings

from torch_musa_sim.cli._errors import UsageError


def register() -> None:
    """Loads torch and registers the device. Raises UsageError with the reason when this environment can't have it."""
    with warnings.catch_warnings():  # torch's hook warns about what is raised below
        warnings.filterwarnings("ignore", message="device 'musa' isn't available|torch_musa_sim stands aside")
        importlib.import_module("torch")
    try:
        importlib.import_module("torch_musa_sim._register").register()
    except Exception as error:
        raise UsageError(f"the device isn't available here: {error}") from None
