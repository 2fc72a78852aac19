"""torch.ops.musa.qkv_norm_rope_append."""

from typing import Any

import pytest
import torch

ops = torch.ops.musa
HEADS, KV_HEADS, PAGES, PAGE = 3, 2, 5, 32


def operands(tokens: int, dim: int, dtype: torch.dtype, device: str) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """qkv, pages, slots, cos, sin; and options."""
    generator = torch.Generator().manual_seed(tokens)
    qkv = torch.randn(tokens, (HEADS + 2 * KV_HEADS) * dim, generator=generator).to(dtype)
    pages = [torch.full((PAGES, KV_HEADS, PAGE, dim), value, dtype=dtype) for value in (7.0, 8.0)]
    slots = torch.randperm(PAGES * PAGE, generator=generator)[:tokens]
    slots[1::5] = -1
    angle = torch.randn(50, dim // 2, generator=generator)
    weights = torch.randn(2, dim, generator=generator).to(dtype)
    positions = torch.randint(50, (tokens,), generator=generator)
    options = {"positions": positions, "q_weight": weights[0], "k_weight": weights[1]}
    moved = {name: value.to(device) for name, value in options.items()}
    return [t.to(device) for t in (qkv, *pages, slots, angle.cos(), angle.sin())], {**moved, "rotary_dim": dim}


@pytest.mark.parametrize("device", ["musa", "cpu"])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(("tokens", "dim"), [(1, 64), (37, 10), (0, 8), (100, 128)])
def test_is_the_split_and_then_the_append(
    tokens: int, dim: int, dtype: torch.dtype, interleaved: bool, device: str
) -> None:
    (qkv, keys, values, slots, cos, sin), options = operands(tokens, dim, dtype, device)
    expected_pages = keys.clone(), values.clone()
    q, k, v = ops.qkv_norm_rope(qkv, HEADS, KV_HEADS, cos, sin, interleaved=interleaved, **options)
    ops.kv_append(*expected_pages, k, v, slots)
    got = ops.qkv_norm_rope_append(qkv, keys, values, slots, cos, sin, interleaved=interleaved, **options)
    assert torch.equal(got, q)
    assert torch.equal(keys, expected_pages[0])
    assert torch.equal(values, expected_pages[1])


def test_a_kernel_serves_it_with_any_number_of_threads() -> None:
    results = []
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            (qkv, keys, values, *rest), options = operands(150, 64, torch.bfloat16, "musa")
            torch.musa.reset_op_statistics()
            q = ops.qkv_norm_rope_append(qkv, keys, values, *rest, **options)
            (entry,) = [op for op in torch.musa.op_statistics() if op.name == "musa::qkv_norm_rope_append"]
            assert entry.native_calls == 1
            results.append((q, keys, values))
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_is_captured_and_replayed() -> None:
    (qkv, keys, values, slots, cos, sin), options = operands(4, 16, torch.bfloat16, "musa")
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        q = ops.qkv_norm_rope_append(qkv, keys, values, slots, cos, sin, **options)
    slots.copy_(torch.tensor([3, -1, 70, 40]))
    options["positions"].add_(-options["positions"] + 2)
    graph.replay()
    expected_pages = torch.full_like(keys, 7), torch.full_like(values, 8)
    expected = ops.qkv_norm_rope_append(qkv, *expected_pages, slots, cos, sin, **options)
    assert torch.equal(q, expected)
    assert torch.equal(keys, expected_pages[0])
    assert torch.equal(values, expected_pages[1])


def test_on_meta() -> None:
    (qkv, *rest), options = operands(4, 16, torch.bfloat16, "cpu")
    moved = {name: value.to("meta") if torch.is_tensor(value) else value for name, value in options.items()}
    q = ops.qkv_norm_rope_append(qkv.to("meta"), *(t.to("meta") for t in rest), **moved)
    assert (q.shape, q.dtype) == ((4, HEADS, 16), torch.bfloat16)


@pytest.mark.parametrize("device", ["musa", "cpu"])
def test_wrong_operands_are_refused(device: str) -> None:
    (qkv, keys, values, slots, cos, sin), options = operands(4, 16, torch.float32, device)

    def call(**changed: torch.Tensor) -> None:
        given = {"qkv": qkv, "key_pages": keys, "value_pages": values, "slots": slots, "cos": cos, "sin": sin}
        ops.qkv_norm_rope_append(**(given | changed), **options)

    with pytest.raises(RuntimeError, match=r"\(heads \+ 2 \* 2\) \* 16\] for these pages, got \[4, 60\]"):
        call(qkv=qkv[:, :60])
    with pytest.raises(RuntimeError, match="one shape and of the dtype of qkv, Double"):
        call(qkv=qkv.double())
    with pytest.raises(RuntimeError, match="a slot of int64 for each token, got Int"):
        call(slots=slots.int())
    before = keys.clone()
    with pytest.raises(IndexError, match=r"slot 160 for token 2, but .* 0 \.\. 159|slot 160 for token 2"):
        call(slots=torch.tensor([0, 1, 160, 2], device=device))
    assert torch.equal(keys, before)
    with pytest.raises(RuntimeError, match="use qkv_norm_rope"):
        call(qkv=qkv.clone().requires_grad_())
