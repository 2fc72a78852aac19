"""Counting how many tokens each expert gets: integer histograms stay on the device and are exact."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
FLOATS = [torch.float32, torch.float64]


def routing(experts: int, tokens: int, top_k: int) -> torch.Tensor:
    """Sorted expert ids; the last expert gets no token."""
    ids = torch.randint(0, experts, (tokens * top_k,), generator=torch.Generator().manual_seed(experts))
    ids[ids == experts - 1] = 0
    return ids.sort()[0]


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
@pytest.mark.parametrize(("experts", "tokens", "top_k"), [(8, 33, 2), (100, 256, 8), (4, 1, 1), (8, 0, 2)])
def test_tokens_per_expert(dtype, experts, tokens, top_k):
    ids = routing(experts, tokens, top_k)
    counts = torch.histc(ids.to("musa", dtype), bins=experts, min=0, max=experts - 1)
    assert counts.device.type == "musa"
    assert counts.dtype == dtype
    assert counts.cpu().long().tolist() == torch.bincount(ids, minlength=experts).tolist()
    offsets = torch.cumsum(counts, 0, dtype=torch.int32)
    assert offsets.dtype == torch.int32
    assert offsets[-1].item() == tokens * top_k


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_ids_outside_the_range_are_dropped(dtype):
    ids = torch.tensor([0, 1, 2, 1, 0, 3, 3, 9], dtype=dtype, device="musa")
    assert torch.histc(ids, bins=3, min=0, max=2).tolist() == [2, 2, 1]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_ids_from_a_strided_view(dtype):
    table = torch.arange(24, device="musa").reshape(6, 4).remainder(5).to(dtype)
    column = table[:, 1]
    assert (
        torch.histc(column, bins=5, min=0, max=4).tolist() == torch.bincount(column.cpu().long(), minlength=5).tolist()
    )


def test_out_argument():
    ids, out = (
        torch.tensor([0, 2, 2], dtype=torch.int32, device="musa"),
        torch.zeros(3, dtype=torch.int32, device="musa"),
    )
    assert torch.histc(ids, bins=3, min=0, max=2, out=out) is out
    assert out.tolist() == [1, 0, 2]


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_shape_inference(dtype):
    with FakeTensorMode():
        counts = torch.histc(torch.zeros(40, dtype=dtype, device="musa"), bins=8, min=0, max=7)
    assert counts.shape == (8,)
    assert counts.device.type == "musa"
    assert counts.dtype == dtype


@pytest.mark.parametrize("weights", [None, torch.float32, torch.float64], ids=str)
def test_bincount(weights):
    ids = routing(8, 33, 2)
    given = None if weights is None else torch.rand(66, dtype=weights)
    counts = torch.bincount(ids.to("musa"), None if given is None else given.to("musa"), minlength=8)
    assert counts.device.type == "musa"
    torch.testing.assert_close(counts.cpu(), torch.bincount(ids, given, minlength=8))


def test_mixtral_forward_with_its_default_experts():
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(config).eval()
    tokens = torch.randint(0, 64, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(tokens).logits
        logits = model.to("musa")(tokens.to("musa")).logits
    torch.testing.assert_close(logits.cpu(), expected, rtol=1e-5, atol=1e-5)
