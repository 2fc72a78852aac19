"""torch_musa_sim.musa.peer: what torch_musa 2.7.1 does with torch's operators."""

import pytest
import torch

from torch_musa_sim.musa import peer


@pytest.fixture(scope="module")
def tables():
    return peer.load()


@pytest.mark.parametrize(
    ("op", "kind", "by"),
    [
        ("mm", "kernel", ()),
        ("histc", "kernel", ()),
        ("_local_scalar_dense", "kernel", ()),
        ("special_bessel_j0", "kernel", ()),
        ("cat", "composite", ("aten::cat.out",)),  # structured: its out= form has the kernel
        ("linear", "composite", ()),
        ("convolution_backward", "composite", ()),
        ("addr", "composite", ("aten::mul.Tensor", "aten::add.Tensor")),
        # From the list of what torch registers for CUDA and torch_musa 2.7.1 doesn't.
        ("_int_mm", "missing", ()),
        ("_weight_int8pack_mm", "missing", ()),
        ("_scaled_dot_product_cudnn_attention", "missing", ()),
        ("_efficient_attention_forward", "missing", ()),
        ("_logcumsumexp", "missing", ()),
        ("_scaled_grouped_mm", "missing", ()),
        ("nonzero_static", "missing", ()),
        ("segment_reduce", "missing", ()),
        ("slow_conv_transpose2d", "missing", ()),  # structured, and its out= form is missing, too
        ("special_hermite_polynomial_h", "missing", ()),
        ("_grouped_mm", "newer", ()),
        ("_scaled_mm_v2", "newer", ()),
        ("_fused_rms_norm", "newer", ()),
        ("hash_tensor", "newer", ()),
    ],
)
def test_operators_are_judged_as_a_reading_of_the_sources_says(op, kind, by, tables):
    assert tables.judge(f"aten::{op}") == peer.Judgement(kind, by)


def test_what_runs_there_under_another_name_is_no_lack(tables):
    judgement = tables.judge("aten::_scaled_dot_product_flash_attention_for_cpu")
    assert judgement == peer.Judgement("as", ("aten::_scaled_dot_product_attention_flash_musa",))
    assert tables.judge(*[judgement.by[0]]).kind == "kernel"


def test_the_dispatch_key_counts(tables):
    assert tables.judge("aten::_coalesce", "SparsePrivateUse1").kind == "kernel"
    assert tables.judge("aten::mm", "SparsePrivateUse1").kind == "missing"


def test_operators_of_other_libraries_are_not_judged(tables):
    assert tables.judge("torchvision::nms").kind == "foreign"


def test_an_operator_newer_than_the_stack_is_replayed_where_torch_composes_it(tables):
    assert tables.replays_newer("aten::_fused_rms_norm")
    assert not tables.replays_newer("aten::_grouped_mm")  # though torch 2.13 has a composite
    assert not tables.replays_newer("aten::hash_tensor")  # a CPU kernel only


def test_the_tables_name_operators_that_exist(tables):
    ours = set(torch._C._dispatch_get_all_op_names())
    assert len(tables.kernels) == 1230
    assert len([op for op in tables.kernels if op in ours]) > 1150
    assert [op for op in tables.notes if op not in ours] == []
    names = {op.split("::")[1].split(".")[0] for op in ours if op.startswith("aten::")}
    assert [row.op for row in tables.limits if row.op not in names and f"{row.op}_" not in names] == []
    assert [row for row in tables.limits if not row.source.startswith("torch_musa/")] == []


def test_every_composite_of_2_7_1_that_runs_here_as_a_whole_has_its_parts_noted(tables):
    """Or the report could say nothing about it."""
    wholes = [
        op
        for op in torch._C._dispatch_get_all_op_names()
        if tables.judge(op).kind == "composite"
        and not tables.judge(op).by
        and torch._C._dispatch_has_kernel_for_dispatch_key(op, "PrivateUse1")
    ]
    assert sorted(op for op in wholes if "_sparse_" not in op) == []


def test_an_unknown_stack_is_refused():
    with pytest.raises(ValueError, match=r"no tables of 'torch_musa-1\.0'; accepted: torch_musa-2\.7\.1"):
        peer.load("torch_musa-1.0")
