"""Printing for the tools whose output goes into pipes."""

import os
import sys

_ENDED_BY_SIGPIPE = 128 + 13  # what a shell shows of a program that a closed pipe ended


def show(text: str) -> None:
    """Prints `text` at once. Where the reader has left (`... | head -1`) the tool ends in silence, as others do."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The interpreter flushes once more at its end; what is left goes where nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(_ENDED_BY_SIGPIPE) from None
