"""Runs somebody's program inside this process, as `python SCRIPT args` or a console script would."""

import builtins
import contextlib
import importlib
import importlib.util
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path

from torch_musa_sim.cli._errors import UsageError


def load(target: str, arguments: Sequence[str]) -> Callable[[], object]:
    """What to call to run `target` with the command line `arguments`; sys.argv and sys.path are set for it.

    target: the path of a script (or of a folder or zip file with a __main__.py), or "module:function", a function
    that takes no argument and whose result is the exit status, as for a console script. Raises UsageError when there
    is nothing of that name.
    """
    if os.path.exists(target):
        return _script(target, arguments)
    module, colon, function = target.partition(":")
    if not colon or not module or not function or "/" in module:
        raise UsageError(f"{target!r} is neither a file nor of the form module:function")
    return _function(module, function, [target, *arguments])


def load_module(name: str, arguments: Sequence[str]) -> Callable[[], object]:
    """What to call to run a module as `python -m name arguments` does. Raises UsageError when there is none."""
    sys.path[0:1] = [os.getcwd()]
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise UsageError(f"-m {name}: {error}") from None
    if found is None:
        raise UsageError(f"-m {name}: there is no module of that name")
    sys.argv[:] = [name, *arguments]
    import runpy

    return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)


def run(program: Callable[[], object]) -> int:
    """Calls `program` and returns the status with which Python would have ended: exceptions are shown, not raised."""
    try:
        result = program()
    except SystemExit as stop:
        return _exit_status(stop.code)
    except KeyboardInterrupt:
        _show_exception()
        return 130
    except BaseException:
        _show_exception()
        return 1
    finally:
        _flush()
    return result if isinstance(result, int) else 0


def wait_for_threads() -> None:
    """Waits for the program's threads, as Python does before it ends, which can't start anything in pools after that.

    The interpreter's own function, since joining alone waits forever for the threads of an executor that was left open:
    they end when it has been told that the program has.
    """
    threading._shutdown()  # type: ignore[attr-defined]


def _script(path: str, arguments: Sequence[str]) -> Callable[[], object]:
    place = Path(path)
    folder = str(place.resolve().parent)
    if place.is_dir() or place.suffix in (".zip", ".pyz"):
        inside = place / "__main__.py"
        if place.is_dir() and not inside.is_file():
            raise UsageError(f"the folder {path!r} has no __main__.py")
        sys.path[0:1] = [str(place)]
        sys.argv[:] = [path, *arguments]
        import runpy

        return lambda: runpy.run_path(path, run_name="__main__")
    try:
        code = compile(place.read_bytes(), path, "exec", dont_inherit=True)
    except OSError as error:
        raise UsageError(f"{path!r} can't be read: {error.strerror}") from None
    except (SyntaxError, ValueError):
        sys.argv[:] = [path, *arguments]
        return _raiser(sys.exc_info()[1])
    # The program is the main module and stays it: pickled classes and spawned processes look it up by that name.
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins, __annotations__={}, __cached__=None)
    sys.modules["__main__"] = main
    sys.path[0:1] = [folder]
    sys.argv[:] = [path, *arguments]

    def execute() -> None:
        exec(code, main.__dict__)

    return execute


def _function(module: str, function: str, argv: list[str]) -> Callable[[], object]:
    sys.argv[:] = argv
    sys.path[0:1] = [os.getcwd()]
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and asks for one that isn't
        raise UsageError(f"there is no module {error.name!r} (looked for {module}:{function})") from None
    for name in function.split("."):
        if not hasattr(found, name):
            raise UsageError(f"module {module!r} has no {function!r}")
        found = getattr(found, name)
    if not callable(found):
        raise UsageError(f"{module}:{function} is a {type(found).__name__}, not a function")
    return found


def _raiser(error: BaseException | None) -> Callable[[], object]:
    def raise_it() -> None:
        assert error is not None
        raise error.with_traceback(None)

    return raise_it


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _show_exception() -> None:
    """The report of an uncaught exception, without the frames of this module."""
    kind, error, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    if kind is None or error is None:
        return
    error.__traceback__ = trace
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(kind, error, trace)
    else:
        sys.excepthook(kind, error, trace)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or a pipe that nobody reads
            stream.flush()
