"""LSTM and GRU, modules and cells, against the CPU: forward, backward, double backward."""

import copy

import pytest
import torch
from torch import nn

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}


def leaves_and_output(module, inputs):
    leaves = [*module.parameters(), *inputs]
    out = module(inputs[0], inputs[1] if len(inputs) == 2 else tuple(inputs[1:]))
    flat = torch.cat([t.reshape(-1) for t in torch.utils._pytree.tree_leaves(out)])
    return leaves, flat


def compare(module, inputs, double_backward=False):
    results = []
    for device in ("cpu", "musa"):
        m = copy.deepcopy(module).to(device)
        xs = [t.detach().to(device, copy=True).requires_grad_() for t in inputs]
        leaves, out = leaves_and_output(m, xs)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).to(out.dtype).to(device)
        grads = torch.autograd.grad((out * weights).sum(), leaves, create_graph=double_backward)
        result = [out, *grads]
        if double_backward:
            second = torch.autograd.grad(sum(g.square().sum() for g in grads), leaves, allow_unused=True)
            result += [torch.zeros(0, device=device) if g is None else g for g in second]
        assert all(t.device.type == device for t in result)
        results.append(result)
    tolerance = TOLERANCE[inputs[0].dtype] * (50 if double_backward else 1)
    for want, have in zip(*results, strict=True):
        torch.testing.assert_close(have.cpu(), want, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}],
    ids=["plain", "no_bias", "two_layers_both_ways", "batch_first"],
)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_modules(kind, options, dtype):
    torch.manual_seed(0)
    module = kind(5, 7, **options).to(dtype)
    x = torch.randn(3, 3, 5, dtype=dtype)
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    states = [torch.randn(layers, 3, 7, dtype=dtype) for _ in range(2 if kind is nn.LSTM else 1)]
    compare(module, [x, *states])


@pytest.mark.parametrize("double_backward", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_cells(kind, bias, double_backward):
    torch.manual_seed(0)
    module = kind(5, 7, bias=bias).double()
    states = [torch.randn(3, 7, dtype=torch.float64) for _ in range(2 if kind is nn.LSTMCell else 1)]
    compare(module, [torch.randn(3, 5, dtype=torch.float64), *states], double_backward)


def test_projection():
    torch.manual_seed(0)
    module = nn.LSTM(5, 7, proj_size=4).double()
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    compare(module, [x, torch.randn(1, 2, 4, dtype=torch.float64), torch.randn(1, 2, 7, dtype=torch.float64)])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequence(kind):
    torch.manual_seed(0)
    module = kind(5, 7)
    x = torch.randn(4, 3, 5)
    outputs = []
    for device in ("cpu", "musa"):
        packed = nn.utils.rnn.pack_padded_sequence(x.to(device), torch.tensor([4, 2, 1]))
        out, _ = copy.deepcopy(module).to(device)(packed)
        outputs.append(nn.utils.rnn.pad_packed_sequence(out)[0].cpu())
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_low_precision(dtype):
    torch.manual_seed(0)
    module = nn.LSTM(5, 7).to(dtype)
    x = torch.randn(3, 2, 5).to(dtype)
    want = module(x)[0]
    have = copy.deepcopy(module).to("musa")(x.to("musa"))[0]
    assert have.dtype == dtype
    torch.testing.assert_close(have.cpu(), want, rtol=2e-2, atol=2e-2)


def test_workspace_and_gradients_when_only_the_cell_state_has_one():
    i, h, c = (torch.randn(2, n, dtype=torch.float64).to("musa").requires_grad_() for n in (12, 12, 3))
    hy, cy, workspace = torch.ops.aten._thnn_fused_lstm_cell(i, h, c)
    assert hy.shape == cy.shape == (2, 3)
    assert workspace.shape == (2, 12)
    got = torch.autograd.grad(cy.sum(), [i, h, c])
    f = torch.sigmoid((i + h)[:, 3:6])
    torch.testing.assert_close(got[2], f)
    assert torch.equal(got[0], got[1])
    assert torch.count_nonzero(got[0][:, 9:]) == 0  # the output gate doesn't reach the cell state
    assert torch.ops.aten._thnn_fused_gru_cell(i[:, :9], h[:, :9], c)[1].shape == (2, 15)


def test_wrong_sizes_are_named():
    gates = torch.zeros(2, 12, device="musa")
    with pytest.raises(RuntimeError, match=r"must be \(batch, 4 \* hidden\)"):
        torch.ops.aten._thnn_fused_lstm_cell(gates, gates, torch.zeros(2, 4, device="musa"))
    bias = torch.zeros(11, device="musa")
    with pytest.raises(RuntimeError, match="needs 12 elements"):
        torch.ops.aten._thnn_fused_lstm_cell(gates, gates, torch.zeros(2, 3, device="musa"), bias, bias)
    with pytest.raises(RuntimeError, match="same device"):
        torch.ops.aten._thnn_fused_lstm_cell(gates, gates.cpu(), torch.zeros(2, 3, device="musa"))
