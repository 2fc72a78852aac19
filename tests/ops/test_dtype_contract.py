"""The table of dtypes that CUDA accepts is what torch 2.13's operator database says, no more and no less."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from .contract import TABLE, load
from .device import CPU_DTYPES, DEVICE, op_db

FLOATING = {torch.float32, torch.float64, torch.float16, torch.bfloat16}


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the table is that of torch 2.13")
def test_table_is_what_the_script_writes():
    script = Path(__file__).with_name("make_dtype_contract.py")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_operator_has_a_row():
    assert {(op.name, op.variant_test_name) for op in op_db} == set(load())


def test_capability_switches_were_on():
    """On a wheel without CUDA the database itself would leave bfloat16 out of these."""
    contract = load()
    for op in ("matmul", "bmm", "addbmm", "baddbmm"):
        assert contract[(op, "")].forward >= FLOATING, op


def test_table_holds_what_cuda_takes_and_the_cpu_does_not():
    contract = load()
    for op, dtypes in {
        "histc": {torch.int32, torch.int64, torch.uint8},
        "abs": {torch.bool},
        "nansum": {torch.complex64},
        "nn.functional.avg_pool3d": {torch.bfloat16, torch.float16},
    }.items():
        assert contract[(op, "")].forward >= dtypes, op
        assert not dtypes & CPU_DTYPES[op], op


def test_table_leaves_out_what_cuda_refuses():
    contract = load()
    assert torch.int64 not in contract[("matmul", "")].forward
    assert torch.int64 in CPU_DTYPES["matmul"]
    assert not any(torch.complex32 in row.forward | row.backward for row in contract.values())


def test_deviations_say_why():
    for line in TABLE.read_text().splitlines()[1:]:
        op, _, _, forward, _, deviation = line.split("\t")
        assert forward or deviation, f"{op} has no dtype and no reason"


@pytest.mark.skipif(DEVICE == "cpu", reason="the CPU's list is cut to its kernels")
def test_operators_are_tested_with_the_contract():
    contract = load()
    for op in op_db:
        row = contract[(op.name, op.variant_test_name)]
        wanted = CPU_DTYPES[op.full_name] if row.cpu_only else row.forward
        assert op.supported_dtypes(DEVICE) == wanted, op.full_name
