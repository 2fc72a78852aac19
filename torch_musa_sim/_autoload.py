"""What `import torch` calls."""


def autoload() -> None:
    """Makes device="musa" exist."""
