"""Strided nested tensors, as torch.nn.TransformerEncoder makes them, and jagged ones."""

import copy

import pytest
import torch
from torch import nn

PARTS = [torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3) - 5]


def nested(device, layout=torch.strided):
    return torch.nested.nested_tensor(PARTS, device=device, layout=layout)


def same(have, want):
    for h, w in zip(have.unbind(), want.unbind(), strict=True):
        assert h.device.type == "musa"
        assert torch.equal(h.cpu(), w)


OPERATIONS = {
    "unbind": lambda x: x,
    "mul": lambda x: x * 2,
    "add": lambda x: x + x,
    "relu": lambda x: torch.relu(x),
    "gelu": lambda x: torch.nn.functional.gelu(x),
    "linear": lambda x: torch.nn.functional.linear(x, torch.ones(5, 3, device=x.device)),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (3,), *torch.ones(2, 3, device=x.device)),
    "softmax": lambda x: torch.softmax(x, -1),
    "clone": lambda x: x.clone(),
    "transpose": lambda x: x.transpose(1, 2),
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2).contiguous()),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_equals_cpu(name):
    same(OPERATIONS[name](nested("musa")), OPERATIONS[name](nested("cpu")))


def test_padding_there_and_back():
    padded = torch.nested.to_padded_tensor(nested("musa"), -1.0)
    want = torch.nested.to_padded_tensor(nested("cpu"), -1.0)
    assert padded.device.type == "musa"
    assert torch.equal(padded.cpu(), want)
    assert nested("musa")._nested_tensor_size().device.type == "cpu"  # shapes are the host's, as on CUDA


def test_jagged_layout():
    same(nested("musa", torch.jagged) * 2, nested("cpu", torch.jagged) * 2)


def test_transformer_encoder_with_padding_mask_equals_cpu():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 5, 16)
    mask = torch.tensor([[False, False, False, True, True], [False] * 5])
    with torch.no_grad():
        want = encoder(x, src_key_padding_mask=mask)
        have = copy.deepcopy(encoder).to("musa")(x.to("musa"), src_key_padding_mask=mask.to("musa"))
    assert have.shape == want.shape
    assert torch.equal(have.cpu(), want)
