"""The package as a whole: how it is found, what it costs, what it refuses, how it ends."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(code: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter outside the source tree."""
    return subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def check(code: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As `run`; the interpreter must have ended cleanly."""
    done = run(code, *flags, **environment)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


# ---- how it is found ------------------------------------------------------------------------------------------------


def test_import_torch_alone_makes_the_device():
    check(
        """
        import torch
        assert (torch.ones(2, device="musa") + 1).tolist() == [2, 2]
        assert torch.accelerator.current_accelerator().type == "musa"
        """,
        "-W",
        "error",
    )


def test_autoload_can_be_switched_off():
    check(
        """
        import sys
        import torch
        assert "torch_musa_sim" not in sys.modules
        try:
            torch.device("musa")
        except RuntimeError:
            pass
        else:
            raise AssertionError("the device exists without its package")
        import torch_musa_sim
        assert torch.ones(1, device="musa").item() == 1
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


@pytest.mark.parametrize("autoload", ["0", "1"])
@pytest.mark.parametrize(
    "order", ["torch_musa_sim, torch", "torch, torch_musa_sim", "torch_musa, torch_musa_sim, torch"]
)
def test_every_order_of_imports_works(order, autoload):
    check(
        f"""
        import {order}
        import torch, torch_musa_sim
        torch_musa_sim._register.register()
        assert torch.ones(1, device="musa").is_musa
        """,
        "-W",
        "error",
        TORCH_DEVICE_BACKEND_AUTOLOAD=autoload,
    )


def test_reloading_and_registering_again_changes_nothing():
    check(
        """
        import importlib, torch, torch_musa_sim
        from torch_musa_sim import _autoload, _register
        module, method = torch.musa, torch.Tensor.__dlpack_device__
        _register.register(); _autoload.autoload(); importlib.reload(torch_musa_sim)
        assert torch.musa is module and torch.Tensor.__dlpack_device__ is method
        """,
        "-W",
        "error",
    )


def test_torch_musa_is_a_real_package_that_clients_find():
    check(
        """
        import importlib.util
        spec = importlib.util.find_spec("torch_musa")
        assert spec is not None and spec.origin.endswith("__init__.py")
        import torch_musa, torch_musa.amp, torch, torch.musa.amp
        assert torch_musa.is_available() and torch_musa.amp is torch.musa.amp
        assert torch_musa._is_in_bad_fork is torch.musa._is_in_bad_fork
        assert isinstance(torch.version.musa, str)
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_the_hook_loads_nothing_heavy():
    done = check("import sys, torch; print(*sys.modules)")
    bare = check("import sys, torch; print(*sys.modules)", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    added = {
        name for name in set(done.stdout.split()) - set(bare.stdout.split()) if not name.startswith("torch_musa_sim")
    }
    heavy = {name for name in added if name.startswith(("torch._dynamo", "torch._inductor", "torch.testing", "sympy"))}
    assert not heavy
    assert "torch_musa_sim" not in bare.stdout.split()


# ---- what it refuses ------------------------------------------------------------------------------------------------

OTHER_TORCH = """
    import importlib.machinery, sys, types
    info = types.ModuleType("torch_musa_sim._build_info")
    info.TORCH_VERSION = "2.99.1"
    sys.modules["torch_musa_sim._build_info"] = info
"""


def test_another_torch_minor_warns_at_import_torch_and_raises_at_import_torch_musa_sim():
    done = check(
        textwrap.dedent(OTHER_TORCH)
        + textwrap.dedent(
            """
            import warnings
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                import torch
            assert len(caught) == 1, [str(w.message) for w in caught]
            print(caught[0].message)
            assert torch.ones(2).sum() == 2
            try:
                import torch_musa_sim
            except ImportError as error:
                print(error)
            else:
                raise AssertionError("imported")
            """
        )
    )
    sentences = done.stdout.splitlines()
    assert len(sentences) == 2
    for sentence in sentences:
        assert "built against torch 2.99.1" in sentence
        assert "build torch_musa_sim again" in sentence


def test_another_torch_patch_version_is_accepted():
    import torch

    minor = ".".join(torch.__version__.split(".")[:2])
    check(
        OTHER_TORCH.replace("2.99.1", f"{minor}.99+other") + "\n    import torch\n    torch.device('musa')",
        "-W",
        "error",
    )


def test_another_backend_that_was_first_is_refused():
    done = run(
        """
        import torch
        torch.utils.rename_privateuse1_backend("other")
        import torch_musa_sim
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.returncode == 1
    assert "ImportError: the out-of-tree backend 'other' is already registered" in done.stderr


def test_the_hook_turns_any_failure_into_a_warning():
    done = check(
        """
        import sys
        sys.modules["torch_musa_sim._C"] = None  # as when a library can't be loaded
        import torch
        print(torch.ones(2).sum().item())
        """
    )
    assert done.stdout == "2.0\n"
    assert "device 'musa' isn't available" in done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("TORCH_MUSA_SIM_CARDS", "many"), ("TORCH_MUSA_SIM_MEMORY", "-3GiB"), ("TORCH_MUSA_SIM_CARD", "H100")],
)
def test_a_bad_environment_value_is_reported_at_first_use_and_never_by_import_torch(name, value):
    done = check(
        """
        import torch
        try:
            torch.ones(1, device="musa")
        except RuntimeError as error:
            print("RuntimeError:", error)
        """,
        "-W",
        "error",
        **{name: value},
    )
    assert done.stdout.startswith("RuntimeError")
    assert name in done.stdout
    assert value in done.stdout


# ---- how it ends ----------------------------------------------------------------------------------------------------

ENDINGS = {
    "plain": "",
    "after backward": "w = torch.ones(4, 4, device='musa', requires_grad=True); (w @ w).sum().backward()",
    "live tensors": "keep = [torch.ones(1000, device=f'musa:{i}') for i in range(torch.musa.device_count())]",
    "graph alive": "w = torch.ones(4, device='musa', requires_grad=True); keep = (w * w).sum()",
    "tensor in a cycle": "class A: pass\na = A(); a.me = a; a.t = torch.ones(3, device='musa')",
    "tensor in a module global": "import types; torch.keep = torch.ones(3, device='musa')",
    "pinned memory": "keep = torch.ones(1000).pin_memory()",
    "streams and events": """
        s = [torch.musa.Stream(device=i % torch.musa.device_count()) for i in range(100)]
        e = torch.musa.Event(enable_timing=True); e.record(s[0]); torch.musa.set_stream(s[1])
    """,
    "finished threads": """
        import threading
        def work():
            w = torch.ones(8, device="musa", requires_grad=True); (w * w).sum().backward()
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]; [t.join() for t in threads]
    """,
    # Waiting ones: a daemon inside an operator aborts the process at exit on torch's own cpu device, too.
    "waiting daemon threads": """
        import threading
        done, never = threading.Semaphore(0), threading.Event()
        def work():
            w = torch.ones(8, device="musa", requires_grad=True); (w * w).sum().backward(); done.release(); never.wait()
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        for _ in range(3):
            done.acquire()
    """,
    "two cards in one backward": """
        w = torch.ones(8, device="musa:0", requires_grad=True); (w.to("musa:1") * 2).sum().backward()
    """,
    "after an error": """
        try:
            torch.ones(2, device="musa") + torch.ones(3, device="musa")
        except RuntimeError:
            pass
    """,
    "in a hook of atexit": """
        import atexit
        w = torch.ones(3, device="musa", requires_grad=True)
        atexit.register(lambda: (w * w).sum().backward())
    """,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_interpreter_ends_with_code_0(ending):
    done = check("import torch\n" + textwrap.dedent(ENDINGS[ending]))
    assert done.stderr == ""


def test_uncaught_exception_ends_with_code_1():
    done = run("import torch; t = torch.ones(3, device='musa'); raise ValueError('on purpose')")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: on purpose")


FAULT = """
    import ctypes, torch
    t = torch.ones(1000, device="musa")
    def reads_a_device_pointer():
        return ctypes.c_float.from_address(t.data_ptr()).value
    {before}
    reads_a_device_pointer()
"""


def test_host_read_of_device_memory_dies_with_the_python_stack():
    done = run(FAULT.format(before=""))
    assert done.returncode == -11
    assert "musa:0" in done.stderr
    assert ".cpu()" in done.stderr
    assert "in reads_a_device_pointer" in done.stderr


def test_fault_in_another_thread_shows_that_thread():
    done = run(
        FAULT.format(
            before="import threading; x = threading.Thread(target=reads_a_device_pointer); x.start(); x.join()"
        )
    )
    assert done.returncode == -11
    assert "in reads_a_device_pointer" in done.stderr
    assert "in run" in done.stderr


# ---- the build ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"PATH": "/nonexistent"}, "No C++ compiler was found. Install g++ 11 or newer: the package `g++`"),
        ({"CXX": "no-such-compiler"}, "CXX='no-such-compiler' was not found"),
        ({"MAX_JOBS": "all"}, "MAX_JOBS='all' is not a positive whole number"),
    ],
)
def test_what_the_build_lacks_is_named(environment, sentence, tmp_path):
    clean = {name: value for name, value in os.environ.items() if name not in {"CXX", "MAX_JOBS"}}
    done = subprocess.run(
        [sys.executable, ROOT / "setup.py", "-q", "build_ext", "--build-lib", tmp_path],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**clean, **environment},
    )
    assert done.returncode == 1
    assert sentence in done.stderr


# ---- the wheel ------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_wheel_works_in_an_environment_of_its_own(tmp_path):
    """Builds from a copy of the tracked files, installs the wheel beside the same torch, runs outside the tree.

    Without a warm ccache the build compiles everything, silently: minutes by itself, half an hour on a busy machine.
    """
    import torch

    source = tmp_path / "source"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in files.split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip"]
    wheels = tmp_path / "wheels"
    subprocess.run([*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", wheels, source], check=True, timeout=3600)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=300)
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "torch.pth").write_text(str(Path(torch.__file__).parent.parent) + "\n")
    # The environment of this test may hold an editable install of the tree; the wheel's must win.
    subprocess.run([python, "-m", "pip", "install", "--no-deps", "--force-reinstall", wheel], check=True, timeout=300)
    code = """if True:
        import torch, torch_musa, torch_musa_sim
        assert torch_musa_sim.__file__.startswith(r"{site}"), torch_musa_sim.__file__
        assert torch_musa.__file__.startswith(r"{site}"), torch_musa.__file__
        w = torch.ones(4, 4, device="musa", requires_grad=True); (w @ w).sum().backward()
        assert w.grad.sum().item() == 128
        print(torch.musa.get_device_name())
    """
    done = subprocess.run([python, "-c", code.replace("{site}", str(site))], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    assert "MTT" in done.stdout
    # The commands, and the library that management tools load.
    for command in (["mthreads-gmi", "-L"], ["musaInfo"], ["musa_toolkits_version"], ["musa-sim", "smi"]):
        script = python.parent / command[0]
        done = subprocess.run([script, *command[1:]], capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr
        assert done.stdout
    load = "import ctypes; print(ctypes.CDLL('libmtml.so.2').mtmlLibraryCountDevice(None, None))"
    folder = site / "torch_musa_sim" / "lib"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([python, "-c", load], capture_output=True, text=True, cwd="/", env=environment)
    assert done.stdout == "1\n", done.stderr
