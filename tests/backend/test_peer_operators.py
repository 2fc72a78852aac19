"""TORCH_MUSA_SIM_OPS=torch_musa-2.7.1: operators exist, are composed and are limited as on that stack."""

import re

import pytest

ASKED = {"TORCH_MUSA_SIM_OPS": "torch_musa-2.7.1"}

PRELUDE = """
    import torch
    import torch.nn.functional as F
    x = torch.arange(16., device="musa").view(4, 4)
    def refused(f):
        try:
            f()
        except (NotImplementedError, RuntimeError) as error:
            return f"{type(error).__name__}: {error}"
        return "accepted"
"""


def test_what_is_missing_there_raises_in_its_words(run_script):
    """Bridged, native and newer operators; of a backward pass, too."""
    done = run_script(
        PRELUDE
        + """
    i8 = torch.ones(32, 32, dtype=torch.int8, device="musa")
    bf = torch.ones(8, 16, dtype=torch.bfloat16, device="musa")
    print(refused(lambda: torch.nonzero_static(x, size=3)))
    print(refused(lambda: torch._int_mm(i8, i8)))
    print(refused(lambda: torch.special.spherical_bessel_j0(x)))
    print(refused(lambda: torch.linalg.matrix_exp(x)))
    offs = torch.tensor([4, 8], device="musa", dtype=torch.int32)
    print(refused(lambda: F.grouped_mm(bf, torch.ones(2, 16, 16, dtype=torch.bfloat16, device="musa"), offs=offs)))
    leaf = x.clone().requires_grad_()
    y = torch.logcumsumexp(leaf.cpu(), 0)
    print(refused(lambda: torch.logcumsumexp(leaf, 0)))
    """,
        **ASKED,
    )
    lines = done.stdout.splitlines()
    names = ("nonzero_static", "_int_mm", "special_spherical_bessel_j0", "linalg_matrix_exp", "_grouped_mm")
    assert len(lines) == 6
    for line, name in zip(lines, [*names, "_logcumsumexp"], strict=True):
        assert line.startswith(
            f"NotImplementedError: Could not run 'aten::{name}' with arguments from the 'musa' backend."
        )
        assert f"torch_musa-2.7.1 has no 'aten::{name}'" in line


def test_composites_are_replayed_and_right(run_script):
    done = run_script(
        PRELUDE
        + """
    host = x.cpu()
    cases = {
        "cat.out": lambda t: torch.cat([t, t]),
        "mul.Tensor": lambda t: torch.addr(t, t[0], t[1]),
        "_copy_from": lambda t: F.pixel_shuffle(t.view(1, 4, 2, 2), 2),
        "rsqrt": lambda t: F.rms_norm(t, (4,)),
        "upsample_nearest2d.out": lambda t: F.interpolate(t[None, None], scale_factor=2),
    }
    for part, case in cases.items():
        expected = case(host)
        torch.musa.reset_op_statistics()
        result = case(x)
        ran = [op.name for op in torch.musa.op_statistics()]
        print(part, f"aten::{part}" in ran, torch.allclose(result.cpu(), expected), ran)
    """,
        **ASKED,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert [line for line in lines if not re.match(r"\S+ True True", line)] == []
    assert not re.search(r"'aten::(cat|addr|pixel_shuffle|upsample_nearest2d)'", done.stdout)


# What is called, and what the error must say; None: accepted.
LIMITS = {
    "F.nll_loss(x.half(), torch.zeros(4, dtype=torch.long, device='musa'))": None,  # CUDA's kernel there
    "F.nll_loss(x[None, None].half(), torch.zeros(1, 4, 4, dtype=torch.long, device='musa'))": "takes self of float32",
    "F.nll_loss(x[None, None], torch.zeros(1, 4, 4, dtype=torch.long, device='musa'))": None,
    "torch.ops.aten._softmax(x.half(), 0, True)": "takes only half_to_float=false",
    "torch.softmax(x.half(), 0)": None,
    "torch.softmax(x.double(), 0)": "takes self of float32,float16,bfloat16, got Double",
    "F.conv1d(x[None].double(), torch.ones(1, 4, 1, device='musa').double())": "takes input of float32",
    "F.conv1d(x[None], torch.ones(1, 4, 1, device='musa'))": None,
    "F.layer_norm(x.double(), (4,))": "'aten::native_layer_norm' of torch_musa-2.7.1 takes input of",
    "torch.addcdiv(x.double(), x.double(), x.double())": "takes self of int32,int64,float32",
    "x.mm(x.long().float())": None,
    "x.double().mm(x.double())": None,
    "x[None].double().bmm(x[None].double())": "takes self of float32,float16,bfloat16,complex64,complex128, got Double",
    "x[None].cfloat().bmm(x[None].cfloat())": None,
    "torch.addmm(x.double(), x.double(), x.double())": "'aten::addmm' of torch_musa-2.7.1 takes self of",
    "x.long().mm(x.long())": "takes self of float32,float16,bfloat16,float64,complex64,complex128, got Long",
    "x.masked_fill(x.byte(), 1.)": "takes mask of bool, got Byte",
    "x.masked_fill(x > 3, 1.)": None,
    "x.to(torch.complex64).scatter(0, x[:1].long().clamp(max=3), x.to(torch.complex64))": "takes self of",
    "x.scatter(0, x[:1].long().clamp(max=3), x)": None,
    "F.avg_pool2d(x[None, None].half().requires_grad_(), 2).sum().backward()": "takes self of float32, got Half",
}


def test_limits_of_arguments_are_checked(run_script):
    cases = "\n".join(f"    print(refused(lambda: {call}))" for call in LIMITS)
    done = run_script(PRELUDE + cases, **ASKED)
    lines = done.stdout.splitlines()
    assert len(lines) == len(LIMITS)
    wrong = []
    for line, (call, sentence) in zip(lines, LIMITS.items(), strict=True):
        right = line == "accepted" if sentence is None else line.startswith("RuntimeError: ") and sentence in line
        wrong += [] if right else [f"{call}: {line}"]
    assert wrong == []


def test_attention_with_large_heads_takes_the_math_path(run_script):
    done = run_script(
        """
    import torch
    import torch.nn.functional as F
    def ran(query, value):
        q, k = (torch.randn(1, 2, 4, query, device="musa") for _ in range(2))
        v = torch.randn(1, 2, 4, value, device="musa")
        torch.musa.reset_op_statistics()
        out = F.scaled_dot_product_attention(q, k, v)
        assert torch.allclose(out.cpu(), F.scaled_dot_product_attention(q.cpu(), k.cpu(), v.cpu()), atol=1e-5)
        return any("flash" in op.name for op in torch.musa.op_statistics())
    print([ran(*sizes) for sizes in [(64, 64), (128, 128), (160, 160), (136, 136), (256, 256)]])
    """,
        **ASKED,
    )
    assert done.stdout == "[True, True, True, False, False]\n"


def test_stock_layers_train_as_without_it(run_script):
    source = """
    import torch
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    conv = torch.nn.Conv1d(16, 16, 3, padding=1)
    model = torch.nn.Sequential(layer, torch.nn.RMSNorm(16), torch.nn.Linear(16, 8)).to("musa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.randn(2, 4, 16).to("musa")
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), torch.arange(8, device="musa"))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"{loss.item():.4f}")
    """
    plain = run_script(source).stdout
    assert len(plain.splitlines()) == 3
    assert run_script(source, **ASKED).stdout == plain


def test_nothing_is_replaced_unless_asked():
    import torch

    for op in ("aten::nonzero_static", "aten::_grouped_mm", "aten::cat", "aten::nll_loss2d_forward"):
        assert "torch_musa_sim peer" not in torch._C._dispatch_dump(op)


def test_an_unknown_stack_is_refused_at_first_use(run_script):
    done = run_script("import torch; torch.ones(1, device='musa')", check=False, TORCH_MUSA_SIM_OPS="torch_musa-9")
    assert done.returncode == 1
    assert "TORCH_MUSA_SIM_OPS=torch_musa-9 is not accepted; accepted: torch_musa-2.7.1" in done.stderr


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (("mm", "self", "dtypes", "float99"), "unknown dtype 'float99'"),
        (("mm", "self", "sideways", ""), "unknown rule 'sideways'"),
        (("_scaled_dot_product_flash_attention_for_cpu", "query,value", "head_dims", "7"), "'7' is no pair"),
    ],
)
def test_a_bad_row_in_a_table_of_limits_is_named(row, sentence):
    from torch_musa_sim import _C

    with pytest.raises(RuntimeError, match=re.escape(sentence)):
        _C._limit_operators([row], "nobody")
