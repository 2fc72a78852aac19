"""torch_musa.utils.musa_extension: extensions for the device are compiled with it, device code is refused."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch_musa.utils.musa_extension as musa_extension

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "extension"


# ---- one extension, compiled once -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The module examples/extension/swiglu.py, its kernels compiled and loaded."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        import swiglu
    finally:
        sys.path.remove(str(EXAMPLE))
    swiglu.LIBRARY = swiglu.build(str(tmp_path_factory.mktemp("extension")))
    return swiglu


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(3, 5), (0, 4), (64, 130)])
def test_kernel_and_gradient_equal_the_formula_on_the_cpu(example, dtype, shape):
    generator = torch.Generator().manual_seed(0)
    gate, up, grad = (torch.randn(shape, generator=generator).to(dtype) for _ in range(3))
    leaves = [t.to("musa").requires_grad_() for t in (gate, up)]
    result = torch.ops.example.swiglu(*leaves)
    result.backward(grad.to("musa"))
    wide = [t.double().requires_grad_() for t in (gate, up)]
    expected = example.formula(*wide)
    expected.backward(grad.double())
    bound = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 4 * torch.finfo(dtype).eps}
    assert result.device.type == "musa"
    for ours, reference in (
        (result, expected),
        *((ours.grad, other.grad) for ours, other in zip(leaves, wide, strict=True)),
    ):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.detach().cpu().double(), reference.detach(), **bound)


def test_views_are_read_where_they_lie(example):
    both = torch.randn(6, 10, device="musa")
    gate, up = both[:, ::2], both[1:, 1::2].new_ones(6, 5)
    torch.testing.assert_close(torch.ops.example.swiglu(gate, up), example.formula(gate, up))


def test_the_launch_is_counted_and_priced(example):
    gate, up = (torch.ones(1024, 1024, device="musa", dtype=torch.bfloat16) for _ in range(2))
    torch.musa.reset_op_statistics()
    start, end = (torch.musa.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.ops.example.swiglu(gate, up)
    end.record()
    end.synchronize()
    (op,) = [op for op in torch.musa.op_statistics() if op.name == "example::swiglu"]
    assert (op.calls, op.bytes, op.bridged) == (1, 3 * 2 * 1024 * 1024, False)
    assert start.elapsed_time(end) * 1e6 >= op.device_ns > 3000


def test_the_operator_passes_torchs_checks(example):
    gate, up = (torch.randn(3, 4, device="musa", requires_grad=True) for _ in range(2))
    tests = ("test_schema", "test_faketensor")  # the one of the autograd registration knows no such device
    torch.library.opcheck(torch.ops.example.swiglu, (gate, up), test_utils=tests)
    assert torch.autograd.gradcheck(torch.ops.example.swiglu, (gate.double(), up.double()))


def test_tensors_of_two_devices_are_refused_in_torchs_words(example):
    x = torch.ones(4, device="musa")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ops.example.swiglu(x, x.to("musa:1"))
    with pytest.raises(RuntimeError, match="a tensor is on cpu; a kernel reaches card memory only"):
        torch.ops.example.swiglu(x, x.cpu())


def test_a_kernel_that_throws_launches_nothing(example):
    x = torch.ones(4, device="musa")
    torch.musa.reset_op_statistics()
    with pytest.raises(RuntimeError, match="not implemented for 'Int'"):
        torch.ops.example.swiglu(x.int(), x.int())
    assert not [op for op in torch.musa.op_statistics() if op.name.startswith("example::")]


def test_a_graph_records_and_replays_the_operator(example):
    gate, up = (torch.randn(8, 8, device="musa") for _ in range(2))
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        out = torch.ops.example.swiglu(gate, up)
    for value in (1.0, -2.0):
        gate.fill_(value)
        graph.replay()
        torch.testing.assert_close(out, example.formula(gate, up))


def test_a_race_between_streams_is_reported_in_strict_mode(example):
    source = """
        import sys, torch
        sys.path.insert(0, sys.argv[1])
        import swiglu
        swiglu.build(sys.argv[2])
        gate, up = (torch.ones(64, 64, device="musa") for _ in range(2))
        side = torch.musa.Stream()
        side.wait_stream(torch.musa.current_stream())
        with torch.musa.stream(side):
            gate.mul_(2)
        torch.ops.example.swiglu(gate, up)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), EXAMPLE, Path(example.LIBRARY).parent],
        capture_output=True,
        text=True,
        env={**os.environ, "TORCH_MUSA_SIM_STRICT": "1"},
    )
    assert done.returncode == 1
    assert "example::swiglu" in done.stderr
    assert "RuntimeError" in done.stderr


# ---- the helper -----------------------------------------------------------------------------------------------------


def test_headers_and_libraries_are_where_it_says():
    (headers,) = set(musa_extension.include_paths(musa=True)) - set(musa_extension.include_paths())
    (libraries,) = set(musa_extension.library_paths(musa=True)) - set(musa_extension.library_paths())
    for header in ("torch_musa_sim/host_kernel.h", "musart/musart_ext.h", "musart/musart_sim.h", "musart/musart.h"):
        assert (Path(headers) / header).is_file()
    assert (Path(libraries) / "libmusart.so").exists()
    assert Path(musa_extension.MUSA_HOME, "include") == Path(headers)


def test_the_c_header_is_c(tmp_path):
    """A kernel author may write C; nothing is linked."""
    source = tmp_path / "kernel.c"
    source.write_text(
        textwrap.dedent(
            """
            #include <musart/musart_ext.h>
            static void nothing(void* const* pointers, const musaKernelArgs* args, void* user) {
              (void)pointers; (void)args; (void)user;
            }
            musaError_t start(void) {
              musaKernelArgs args = {"nothing", 0, 0, 0, 0, {0, 0, musaSimFp32}};
              return musaLaunchHostKernel(nothing, &args, 0, 0);
            }
            """
        )
    )
    include = musa_extension.include_paths(musa=True)[-1]
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include}", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_extension_for_setup_py_names_what_it_needs():
    extension = musa_extension.MUSAExtension("mine", ["kernel.cpp"], libraries=["m"], include_dirs=["here"])
    assert extension.language == "c++"
    assert {"m", "torch_musa_sim", "musart", "torch", "c10"} <= set(extension.libraries)
    assert "here" in extension.include_dirs
    assert musa_extension.include_paths(musa=True)[-1] in extension.include_dirs
    assert issubclass(
        musa_extension.BuildExtension.with_options(use_ninja=False), torch.utils.cpp_extension.BuildExtension
    )


@pytest.mark.parametrize(
    "use",
    [
        lambda: musa_extension.MUSAExtension("mine", ["kernel.mu"]),
        lambda: musa_extension.load("mine", ["a.cpp", "kernel.mu"]),
        lambda: musa_extension.load_inline("mine", "int x;", musa_sources="__global__ void k() {}"),
    ],
)
def test_device_code_is_refused_with_what_to_do(use):
    with pytest.raises(ValueError, match=r"is device code for Moore Threads' compiler, .*docs/extending\.md"):
        use()


def test_sycl_is_refused():
    with pytest.raises(ValueError, match="SYCL sources can't be built"):
        musa_extension.load("mine", ["a.cpp"], with_sycl=True)


def test_the_ninja_file_of_the_single_steps_compiles_for_the_host(tmp_path):
    path = tmp_path / "build.ninja"
    musa_extension._write_ninja_file_to_build_library(
        str(path), "mine", [str(tmp_path / "a.cpp")], ["-O1"], ["--device"], [], ["-lm"], [], True, False, False
    )
    text = path.read_text()
    assert "-O1" in text
    assert "--device" not in text
    assert musa_extension.include_paths(musa=True)[-1] in text


def test_architecture_flags_name_the_cards():
    major, minor = torch.musa.get_device_capability()
    assert musa_extension._get_musa_arch_flags() == [f"--offload-arch=mp_{major}{minor}"]


def test_architecture_flags_follow_the_list():
    code = "from torch_musa.utils import musa_extension; print(*musa_extension._get_musa_arch_flags())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"TORCH_MUSA_ARCH_LIST": "mp_22; mp_31"},
    )
    assert done.stdout.split() == ["--offload-arch=mp_22", "--offload-arch=mp_31"], done.stderr
