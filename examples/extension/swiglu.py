"""A kernel of one's own for the device: SwiGLU, fused, with a gradient.

Compiles swiglu.cpp beside it, tells torch the rest about the operator, and compares it with the formula on the card:

    python examples/extension/swiglu.py
"""

from pathlib import Path

import torch
import torch_musa.utils.musa_extension as musa_extension

SOURCE = Path(__file__).resolve().parent / "swiglu.cpp"


def formula(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


def build(build_directory: str | None = None) -> str:
    """Compiles and loads the kernels, then registers what isn't about the card; once in a process.

    Returns the path of the library. What is compiled already isn't compiled again.
    """
    library = musa_extension.load(
        "example_swiglu",
        [str(SOURCE)],
        extra_cflags=["-O2"],
        build_directory=build_directory,
        is_python_module=False,
    )
    # Shapes and dtypes, for fake tensors: torch.compile and torch.export ask for them.
    torch.library.register_fake("example::swiglu", lambda gate, up: torch.empty_like(gate))
    torch.library.register_fake(
        "example::swiglu_backward", lambda grad, gate, up: (torch.empty_like(gate), torch.empty_like(up))
    )
    torch.library.register_kernel("example::swiglu", "cpu", formula)
    torch.library.register_autograd(
        "example::swiglu",
        lambda ctx, grad: torch.ops.example.swiglu_backward(grad, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    return library


def virtual_us(program) -> float:
    """Virtual microseconds that the card needs for `program`."""
    start, end = (torch.musa.Event(enable_timing=True) for _ in range(2))
    start.record()
    program()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def main() -> None:
    build()
    gate, up = (torch.randn(2048, 4096, device="musa", dtype=torch.bfloat16) for _ in range(2))
    error = (torch.ops.example.swiglu(gate, up) - formula(gate, up)).abs().max().item()
    print(f"largest difference from silu(gate) * up: {error:.3g}")
    print(f"one kernel: {virtual_us(lambda: torch.ops.example.swiglu(gate, up)):.1f} us of the card's virtual time")
    print(f"formula:    {virtual_us(lambda: formula(gate, up)):.1f} us")


if __name__ == "__main__":
    main()
