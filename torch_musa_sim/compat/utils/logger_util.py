"""The logger of the tools in this folder."""

import logging
import sys


def create_logger() -> logging.Logger:
    """The logger "torch_musa": to stderr, from INFO on, one handler however often it is called."""
    logger = logging.getLogger("torch_musa")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger


LOGGER = create_logger()
