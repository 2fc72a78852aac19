"""torch.nn.parallel on several cards: copies from card to card, and the numbers of one card."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import parallel
from torch.nn.parallel import comm


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 3))
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.body(x) * scale + self.shift


def test_forward_and_backward_equal_one_card():
    torch.manual_seed(1)
    single = Net().double()
    wide = parallel.DataParallel(copy.deepcopy(single).musa(), device_ids=[0, 1, 2])
    x = torch.randn(7, 6, dtype=torch.float64)
    expected = single(x, scale=2.0)
    expected.pow(2).sum().backward()
    got = wide(x.musa(), scale=2.0)
    assert got.device == torch.device("musa", 0)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-12, atol=1e-12)
    got.pow(2).sum().backward()
    for wanted, parameter in zip(single.parameters(), wide.parameters(), strict=True):
        assert parameter.grad.device == torch.device("musa", 0)
        torch.testing.assert_close(parameter.grad.cpu(), wanted.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("error")
def test_all_cards_are_used_by_default_and_train():
    torch.manual_seed(2)
    model = nn.DataParallel(Net().musa())
    assert model.device_ids == list(range(torch.musa.device_count()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 6, device="musa"), torch.randn(16, 3, device="musa")
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]


def test_an_error_on_one_card_names_its_replica():
    model = nn.DataParallel(nn.Linear(4, 4).musa(), device_ids=[0, 1])
    with pytest.raises(RuntimeError, match="Caught RuntimeError in replica 0 on device 0"):
        model(torch.ones(4, 5, device="musa"))


def test_replicas_lie_on_their_cards_and_send_gradients_home():
    model = Net().musa(1)
    replicas = parallel.replicate(model, [1, 0, 2])
    assert [replica.body[0].weight.device.index for replica in replicas] == [1, 0, 2]
    assert [replica.shift.device.index for replica in replicas] == [1, 0, 2]
    sum(replica.body[0].bias.sum().to("musa:1") * (i + 1) for i, replica in enumerate(replicas)).backward()
    assert model.body[0].bias.grad.tolist() == [6] * 5


def test_scatter_gather_and_their_gradients():
    x = torch.arange(10.0, device="musa:1").view(5, 2).requires_grad_()
    parts = parallel.scatter({"x": x, "n": 3}, [0, 1])
    assert [part["x"].device.index for part in parts] == [0, 1]
    assert [part["n"] for part in parts] == [3, 3]
    assert parts[0]["x"].tolist() == x[:3].tolist()
    joined = parallel.gather([part["x"] * (i + 1) for i, part in enumerate(parts)], 2)
    assert joined.device.index == 2
    joined.sum().backward()
    assert x.grad.tolist() == [[1, 1]] * 3 + [[2, 2]] * 2
    on_host = parallel.gather([part["x"] for part in parts], "cpu")
    assert on_host.device.type == "cpu"
    assert torch.equal(on_host, x.detach().cpu())


def test_comm_broadcast():
    x = torch.arange(4.0, device="musa:1")
    copies = comm.broadcast(x, [0, 1, 2])
    assert [c.device.index for c in copies] == [0, 1, 2]
    assert copies[1].data_ptr() == x.data_ptr()
    assert all(torch.equal(c.cpu(), x.cpu()) for c in copies)
    outs = [torch.empty(4, device="musa:0"), torch.empty(4, device="musa:2")]
    assert comm.broadcast(x, out=outs)[1] is outs[1]
    assert outs[0].tolist() == outs[1].tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
        comm.broadcast(x)
    with pytest.raises(RuntimeError, match="same shape"):
        comm.broadcast(x, out=[torch.empty(3, device="musa")])
    with pytest.raises(RuntimeError, match="on musa cards"):
        comm.broadcast(x, out=[torch.empty(4)])


@pytest.mark.parametrize("buffer_size", [1, 64, 1 << 20])
def test_coalesced_broadcast_keeps_order_and_dtypes(buffer_size):
    tensors = [
        torch.arange(n, dtype=dtype, device="musa")
        for n, dtype in ((3, torch.float32), (5, torch.int64), (40, torch.float32), (1, torch.float32))
    ]
    home, away = comm.broadcast_coalesced(tensors, [0, 1], buffer_size)
    assert all(a is b for a, b in zip(home, tensors, strict=True))
    for source, moved in zip(tensors, away, strict=True):
        assert moved.device.index == 1
        assert moved.dtype == source.dtype
        assert torch.equal(moved.cpu(), source.cpu())
    version = away[0]._version
    away[2].add_(1)
    assert away[0]._version == version
    with pytest.raises(RuntimeError, match=r"must be on devices\[0\]"):
        comm.broadcast_coalesced(tensors, [1, 0])


def test_comm_scatter_and_gather_in_sizes_and_on_streams():
    x = torch.arange(12.0).view(6, 2)
    streams = [torch.musa.Stream(0), torch.musa.Stream(1)]
    parts = comm.scatter(x, [0, 1], chunk_sizes=[1, 5], streams=streams)
    assert [tuple(part.shape) for part in parts] == [(1, 2), (5, 2)]
    for stream in streams:
        torch.musa.current_stream(stream.device).wait_stream(stream)
    by_column = comm.scatter(x.musa(), ["musa:1", "musa:2"], dim=-1)
    assert torch.equal(comm.gather(by_column, dim=1, destination="cpu"), x)
    out = torch.empty(6, 2)
    assert torch.equal(comm.gather(parts, out=out), x)
    outs = [torch.empty(4, 2, device="musa:0"), torch.empty(2, 2, device="musa:3")]
    comm.scatter(x, out=outs)
    assert torch.equal(torch.cat([part.cpu() for part in outs]), x)
    assert comm.gather(parts).device.index == torch.musa.current_device()
    with pytest.raises(RuntimeError, match="same length"):
        comm.scatter(x, [0, 1], chunk_sizes=[6])
    with pytest.raises(RuntimeError, match="match the device"):
        comm.scatter(x, [1, 0], streams=streams)
    with pytest.raises(RuntimeError, match="on musa cards"):
        comm.gather([x])


def test_gather_keeps_channels_last():
    parts = [torch.ones(1, 3, 2, 2, device=f"musa:{i}").to(memory_format=torch.channels_last) for i in range(2)]
    assert comm.gather(parts, destination=0).is_contiguous(memory_format=torch.channels_last)


def test_buffers_of_batch_norm_follow_card_0():
    model = nn.DataParallel(nn.BatchNorm1d(2).musa(), device_ids=[0, 1])
    x = torch.randn(8, 2, device="musa")
    model(x)
    torch.testing.assert_close(model.module.running_mean, 0.1 * x[:4].mean(0))
    assert model.module.num_batches_tracked.item() == 1
