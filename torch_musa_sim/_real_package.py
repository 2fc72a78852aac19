"""Is the real torch_musa installed beside us? Asked before torch is imported; needs neither torch nor our libraries.

Both packages have a folder `torch_musa`, so whichever was installed last has overwritten files of the other. The folder
therefore says nothing: what counts is the distribution, that is its metadata and the files its RECORD lists.
"""

import hashlib
import importlib.metadata
import sys
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

_INIT = "torch_musa/__init__.py"


@dataclass(frozen=True)
class RealPackage:
    """An installed torch_musa that isn't ours. `folder_is_ours`: its files were overwritten with ours."""

    version: str
    place: str
    folder_is_ours: bool

    def __str__(self) -> str:
        ours = "pip uninstall torch_musa_sim"
        theirs = "pip uninstall torch_musa"
        if self.folder_is_ours:
            ours += f" && pip install --force-reinstall --no-deps torch_musa=={self.version}"
        else:
            theirs += ", then install torch_musa_sim again"
        return (
            f"torch_musa {self.version} is installed ({self.place}) and provides the device 'musa' and the package "
            f"torch_musa, as torch_musa_sim does; uninstall one of the two: `{ours}` for real cards, `{theirs}` for "
            "simulated ones"
        )


def find() -> RealPackage | None:
    """The real torch_musa of this environment, or None."""
    for distribution in importlib.metadata.distributions(name="torch_musa"):
        if _is_installed(distribution):
            folder_is_ours = _owns_folder(distribution) is False
            return RealPackage(str(distribution.version), str(distribution.locate_file("")), folder_is_ours)
    return None


def refuse() -> None:
    """Raises ImportError, in one sentence, when the real torch_musa is installed."""
    found = find()
    if found is not None:
        raise ImportError(f"{found}.")


def torch_is_being_imported() -> bool:
    """True inside `import torch`, that is in a hook of the entry point group `torch.backends`."""
    torch = sys.modules.get("torch")
    return torch is not None and getattr(torch.__spec__, "_initializing", False)


def _is_installed(distribution: Distribution) -> bool:
    """False for metadata that was left behind: a RECORD of which no other file is there any more."""
    files = distribution.files
    if not files:  # an editable install of old, or another installer: nothing to judge by
        return True
    listed = [file for file in files if ".dist-info/" not in str(file) and not str(file).endswith(".pyc")]
    return not listed or any(Path(str(file.locate())).exists() for file in listed)


def _owns_folder(distribution: Distribution) -> bool | None:
    """Whether torch_musa/__init__.py is the file that the distribution installed; None when that can't be told."""
    for file in distribution.files or []:
        if str(file) == _INIT and file.hash is not None and file.hash.mode == "sha256":
            path = Path(str(file.locate()))
            return path.is_file() and _digest(path) == file.hash.value
    return None


def _digest(path: Path) -> str:
    return urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
