"""Strict mode: what CUDA refuses is refused, what CUDA accepts still runs; by default musa takes what the CPU takes."""

from __future__ import annotations

import os

import pytest
import torch

REFUSED = {
    "matmul of int64": "torch.ones(2, 2, dtype=torch.int64, device='musa').mm(torch.ones(2, 2).long().to('musa'))",
    "bmm of int32": "torch.bmm(*[torch.ones(1, 2, 2, dtype=torch.int32, device='musa')] * 2)",
    "convolution of int64": "F.conv2d(*[torch.ones(1, 1, 3, 3, dtype=torch.int64, device='musa')] * 2)",
}


@pytest.mark.skipif(os.environ.get("TORCH_MUSA_SIM_STRICT") == "1", reason="about the default, which isn't in force")
def test_integer_matmul_works_by_default():
    a = torch.arange(6).reshape(2, 3)
    assert torch.equal((a.to("musa") @ a.T.to("musa")).cpu(), a @ a.T)


@pytest.mark.parametrize("what", REFUSED)
def test_strict_mode_refuses_in_cudas_words(run_script, what):
    result = run_script(
        f"""
        import torch, torch.nn.functional as F
        try:
            {REFUSED[what]}
        except RuntimeError as error:
            print(error)
        """,
        TORCH_MUSA_SIM_STRICT="1",
    )
    assert "not implemented for '" in result.stdout
    assert "TORCH_MUSA_SIM_STRICT=1" in result.stdout


def test_strict_mode_runs_all_that_cuda_accepts(run_script):
    result = run_script(
        """
        import warnings
        import torch
        from torch.testing._internal.common_methods_invocations import op_db
        from tests.ops.contract import load

        warnings.simplefilter("ignore")
        contract, ran = load(), 0
        for op in op_db:
            accepted = contract.get((op.name, op.variant_test_name))
            for dtype in sorted(accepted.forward, key=str) if accepted else ():
                try:
                    # Not op.sample_inputs: it looks up the source of its callers, 10 ms each time in this script.
                    sample = next(iter(op.sample_inputs_func(op, "musa", dtype, False)))
                    op(sample.input, *sample.args, **sample.kwargs)
                    ran += 1
                except Exception as error:  # other faults are the operator suite's to find
                    if "TORCH_MUSA_SIM_STRICT" in str(error):
                        print("refused:", op.name, dtype, error)
        print("ran", ran)
        """,
        TORCH_MUSA_SIM_STRICT="1",
    )
    assert "refused:" not in result.stdout, result.stdout
    assert int(result.stdout.split()[-1]) > 5000
