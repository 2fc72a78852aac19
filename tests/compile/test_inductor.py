"""torch.compile with the default backend: results, gradients, shapes, devices."""

import copy

import torch
from compiled import MUSA, assert_close, copies, on_card, regions
from torch import nn


def test_training_step_equals_eager_and_compiled_cpu():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    eager, compiled, on_cpu = copy.deepcopy(model).to(MUSA), copy.deepcopy(model).to(MUSA), copy.deepcopy(model)
    fast, fast_cpu = torch.compile(compiled), torch.compile(on_cpu)
    for _ in range(2):
        data = torch.randn(8, 16)
        losses = [m(d).square().mean() for m, d in ((eager, data.to(MUSA)), (fast, data.to(MUSA)), (fast_cpu, data))]
        for loss in losses:
            loss.backward()
        assert_close(losses[1], losses[0])
        assert_close(losses[1], losses[2])
    for ours, in_eager, cpus in zip(compiled.parameters(), eager.parameters(), on_cpu.parameters(), strict=True):
        assert ours.grad is not None
        assert ours.grad.device == MUSA
        assert_close(ours.grad, in_eager.grad)
        assert_close(ours.grad, cpus.grad)
    counts = regions()
    assert sorted(counts.values()) == [2, 2]  # forward and backward, one launch each time; the CPU's aren't counted
    assert any("forward" in name for name in counts)
    assert any("backward" in name for name in counts)
    assert copies() == 0


def test_dynamic_shapes_share_one_graph_and_its_modelled_cost_follows_the_shape():
    @torch.compile(dynamic=True, fullgraph=True)
    def project(x, w):
        return (x @ w).relu().sum(0)

    w = torch.randn(64, 64)
    times = []
    for rows in (3, 7, 4096):
        x = torch.randn(rows, 64)
        torch.musa.reset_op_statistics()
        assert_close(project(x.to(MUSA), w.to(MUSA)), (x @ w).relu().sum(0), atol=1e-3, rtol=1e-4)
        times += [op.device_ns for op in torch.musa.op_statistics() if op.name.startswith("inductor::")]
    assert len(times) == 3
    assert times[0] <= times[1] < times[2]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_another_dtype_or_card_compiles_again_and_stays_right():
    f = torch.compile(lambda x: x.sin() + 1, fullgraph=True)
    x = torch.randn(5)
    for device, dtype in (("musa:0", torch.float32), ("musa:1", torch.float32), ("musa:1", torch.bfloat16)):
        result = f(x.to(device, dtype))
        assert result.device == torch.device(device)
        assert_close(result, x.to(dtype).sin() + 1)


def test_graph_break_and_print_between_two_compiled_parts():
    seen = []

    @torch.compile
    def broken(x):
        y = x * 2
        seen.append(float(y.sum()))  # a value on the host
        torch._dynamo.graph_break()
        return y.cos()

    x = torch.arange(4.0)
    assert_close(broken(x.to(MUSA)), (x * 2).cos())
    assert seen == [12.0]


def test_cpu_and_musa_tensors_in_one_graph():
    def mixed(card, host):
        on_host = card.cpu() + host
        card.add_(1)  # after its copy: the copy keeps the old values
        return on_host, host.to(MUSA) * card, host.to(MUSA), card.cpu(), card * torch.tensor(3.0)

    x, host = torch.randn(4), torch.randn(4)
    card = x.to(MUSA)
    results = torch.compile(mixed, fullgraph=True)(card, host)
    assert [result.device.type for result in results] == ["cpu", "musa", "musa", "cpu", "musa"]
    assert_close(results, (x + host, host * (x + 1), host, x + 1, (x + 1) * 3))
    assert_close(card, x + 1)
    results[0].add_(results[3])  # host memory, as host code may touch it
    assert results[0].numpy().shape == (4,)


def test_two_cards_in_one_graph():
    f = torch.compile(lambda a, b: ((a * 2).to("musa:1") + b, a + 1), fullgraph=True)
    a, b = torch.randn(4), torch.randn(4)
    there, here = f(a.to("musa:0"), b.to("musa:1"))
    assert (there.device.index, here.device.index) == (1, 0)
    assert_close(there + b.to("musa:1"), a * 2 + b + b)  # its memory is the second card's: eager code takes it
    assert_close(here, a + 1)
    before = torch.musa.memory_allocated(1)
    del there
    assert torch.musa.memory_allocated(1) < before


def test_autocast_no_grad_and_inference_mode():
    torch.manual_seed(0)
    model = nn.Linear(16, 16).to(MUSA)
    x = torch.randn(4, 16, device=MUSA)
    fast = torch.compile(model, fullgraph=True)
    with torch.autocast("musa", dtype=torch.bfloat16):
        result = fast(x)
        assert result.dtype == torch.bfloat16
        assert_close(result, model(x))
    with torch.no_grad():
        assert not fast(x).requires_grad
    with torch.inference_mode():
        result = fast(x)
        assert result.is_inference()
        assert_close(result, model(x))


def test_compiled_optimizer_step():
    torch.manual_seed(0)
    host = [torch.randn(4, 4, requires_grad=True) for _ in range(2)]
    card = on_card(host)
    on_host, on_musa = torch.optim.AdamW(host, lr=0.1), torch.optim.AdamW(card, lr=0.1)
    step = torch.compile(on_musa.step)
    for _ in range(3):
        for p, q in zip(host, card, strict=True):
            p.grad = torch.ones_like(p)
            q.grad = torch.ones_like(q)
        on_host.step()
        step()
    assert_close(card, host)
    assert list(regions().values()) == [3]


def test_attention_convolution_and_batch_norm_train():
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)

        def forward(self, x):
            x = self.norm(self.conv(x)).relu().flatten(2)
            return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    model = Net()
    card = copy.deepcopy(model).to(MUSA)
    x = torch.randn(2, 3, 4, 4)
    ours, expected = torch.compile(card, fullgraph=True)(x.to(MUSA)), model(x)
    ours.square().sum().backward()
    expected.square().sum().backward()
    assert_close(ours, expected)
    assert_close([p.grad for p in card.parameters()], [p.grad for p in model.parameters()], atol=1e-4, rtol=1e-4)
    assert_close(card.norm.running_var, model.norm.running_var)


def test_scatter_and_masks():
    def f(x, index, values):
        y = x.clone()
        y[index] = values
        y.index_put_((index,), values, accumulate=True)
        z = torch.zeros_like(x).scatter_add(0, index[:, None].expand(-1, 3), values)
        return y, z, x[index], x.masked_fill(x > 0, 1.0)

    arguments = (torch.randn(6, 3), torch.tensor([1, 3, 3]), torch.ones(3, 3))
    assert_close(torch.compile(f, fullgraph=True)(*on_card(arguments)), f(*arguments))


def test_sizes_and_values_that_the_run_finds_out():
    patch = torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
    x = torch.tensor([0, 1.0, 2])
    with patch:
        f = torch.compile(lambda x: (x.nonzero(), x.sum().item() + 1), fullgraph=True)
        where, total = f(x.to(MUSA))
    assert_close(where, x.nonzero())
    assert total == 4
    assert isinstance(total, float)
