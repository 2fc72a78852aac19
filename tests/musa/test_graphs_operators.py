"""A replayed graph gives what eager execution on the card gives, operator by operator and layer by layer."""

import copy

import pytest
import torch
import torch.nn.functional as F


def r(*size, **options):
    return torch.randn(*size, generator=torch.Generator().manual_seed(7)).to("musa", **options)


def attention(causal):
    q, k, v = r(2, 4, 6, 8), r(2, 4, 6, 8) + 1, r(2, 4, 6, 8) - 1
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def moe_block():
    x, router = r(10, 8, dtype=torch.bfloat16), r(4, 8, dtype=torch.bfloat16)
    up, down = r(4, 8, 16, dtype=torch.bfloat16), r(4, 16, 8, dtype=torch.bfloat16)

    def body():
        weights, experts = (x @ router.t()).softmax(-1, dtype=torch.float32).topk(2)
        order = experts.flatten().argsort(stable=True)
        counts = torch.zeros(4, dtype=torch.int64, device="musa")
        counts.scatter_add_(0, experts.flatten(), torch.ones_like(experts.flatten()))
        ends = counts.cumsum(0).to(torch.int32)
        rows = x[order // 2]
        hidden = F.silu(torch._grouped_mm(rows, up, offs=ends))
        out = torch._grouped_mm(hidden, down, offs=ends) * weights.flatten()[order, None]
        return torch.zeros(10, 8, device="musa").index_add_(0, order // 2, out.float()), ends

    return body


def index_put(accumulate):
    base, index, values = r(6, 3), torch.tensor([0, 2, 2, 5]).to("musa"), r(4, 3)
    return lambda: base.clone().index_put_((index,), values, accumulate=accumulate)


def mask_fill():
    base = r(5, 5)
    mask = base > 0

    def body():
        filled = base.clone()
        filled[mask] = 0.5
        return filled, torch.where(mask, base, 2.0)

    return body


def key_value_cache():
    cache, key = torch.zeros(1, 2, 8, 4, device="musa"), r(1, 2, 1, 4)
    position = torch.tensor([3]).to("musa")

    def body():
        cache.index_copy_(2, position, key)
        position.add_(1)
        return cache * 1

    return body


def convolution(**options):
    x, w, b = r(2, 4, 9, 9), r(6, 4, 3, 3), r(6)
    return lambda: F.conv2d(x, w, b, padding=1, **options)


def lstm():
    layer, x = torch.nn.LSTM(5, 7, num_layers=2).to("musa"), r(4, 3, 5)
    return lambda: layer(x)


def gru():
    layer, x = torch.nn.GRU(5, 7).to("musa"), r(4, 3, 5)
    return lambda: layer(x)


def autocast_block():
    layer, x = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)).to("musa"), r(3, 6)

    def body():
        with torch.autocast("musa", torch.bfloat16, cache_enabled=False):
            return layer(x)

    return body


def foreach():
    tensors = [r(3), r(4, 2), r(1)]

    def body():
        scaled = torch._foreach_mul(tensors, 2.0)
        torch._foreach_add_(scaled, tensors)
        return (*scaled, torch.stack(torch._foreach_norm(scaled)))

    return body


def complex_product():
    x, y = torch.view_as_complex(r(4, 2)), torch.view_as_complex(r(4, 2) + 1)
    return lambda: (x * y.conj(), torch.fft.fft(x).abs())


def with_inputs(function, *inputs):
    return lambda: function(*inputs)


x, y = r(4, 6), r(4, 6) + 2
BODIES = {
    "matmul": lambda: with_inputs(
        lambda a, b: (a @ b.t(), torch.addmm(b[:, :4], a, b.t()), a[None] @ b.t()[None]), x, y
    ),
    "pointwise": lambda: with_inputs(lambda a, b: (a.div(b), a.pow(2), F.gelu(a), (a > b) | (a < 0), a // 2), x, y),
    "reductions": lambda: with_inputs(lambda a: (a.sum(), a.mean(0), a.amax(1), a.std(), a.argmax(-1)), x),
    "shapes": lambda: with_inputs(lambda a: (a.t().contiguous(), a.reshape(3, 8) + 1, a.flip(0), a.roll(1, 1)), x),
    "cat": lambda: with_inputs(lambda a, b: (torch.cat([a, b], 1), torch.stack([a, b]), *a.split(2)), x, y),
    "sort": lambda: with_inputs(lambda a: (*a.sort(1), *a.topk(3), a.median(), *a.kthvalue(2)), x),
    "cumulative": lambda: with_inputs(lambda a: (a.cumsum(1), *a.cummax(0), a.logcumsumexp(1)), x),
    "factories": lambda: (
        lambda: (
            torch.arange(5, device="musa"),
            torch.eye(3, device="musa"),
            torch.tril_indices(3, 3, device="musa"),
            torch.full((2, 2), 7, device="musa"),
            torch.linspace(0, 1, 5, device="musa"),
        )
    ),
    "embedding": lambda: with_inputs(F.embedding, torch.tensor([1, 0, 3, 3]).to("musa"), x),
    "gather": lambda: with_inputs(
        lambda a, i: (a.gather(1, i), a.scatter(1, i, 0.0), a.index_select(0, i[0])),
        x,
        torch.tensor([[1, 0], [3, 2]] * 2).to("musa"),
    ),
    "norms": lambda: with_inputs(
        lambda a: (F.layer_norm(a, (6,)), F.rms_norm(a, (6,)), F.group_norm(a, 3), F.normalize(a)), x
    ),
    "batch_norm": lambda: with_inputs(
        lambda a, m, v: (F.batch_norm(a, m, v, training=True), m * 1, v * 1),
        x,
        torch.zeros(6).to("musa"),
        torch.ones(6).to("musa"),
    ),
    "losses": lambda: with_inputs(
        lambda a, t: (F.cross_entropy(a, t), F.mse_loss(a, a + 1), F.nll_loss(a.log_softmax(1), t)),
        x,
        torch.tensor([1, 0, 5, 2]).to("musa"),
    ),
    "integer_division": lambda: with_inputs(
        lambda a, b: (a // b, a % b), torch.tensor([7, -7]).to("musa"), torch.tensor([2, 3]).to("musa")
    ),
    "linear_algebra": lambda: with_inputs(
        lambda a: (torch.linalg.qr(a)[1], torch.linalg.cholesky_ex(a @ a.t() + torch.eye(4, device="musa"))[0]), x
    ),
    "pooling": lambda: with_inputs(
        lambda a: (F.max_pool2d(a, 2), F.avg_pool2d(a, 2), F.interpolate(a, scale_factor=2)), r(1, 2, 6, 6)
    ),
    "upcast_pooling": lambda: with_inputs(lambda a: F.avg_pool3d(a, 2), r(1, 2, 4, 4, 4, dtype=torch.bfloat16)),
    "einsum": lambda: with_inputs(lambda a, b: torch.einsum("ij,kj->ik", a, b), x, y),
    "strided": lambda: with_inputs(lambda a: (a[:, ::2] * 2, a.t()[1:3].relu_()), x.clone()),
    "channels_last": lambda: with_inputs(
        lambda a, w: F.conv2d(a, w), r(1, 4, 5, 5).to(memory_format=torch.channels_last), r(3, 4, 2, 2)
    ),
    "attention": lambda: attention(False),
    "causal_attention": lambda: attention(True),
    "moe_block": moe_block,
    "index_put": lambda: index_put(False),
    "index_put_accumulate": lambda: index_put(True),
    "mask_fill": mask_fill,
    "key_value_cache": key_value_cache,
    "conv2d": convolution,
    "conv2d_dilated": lambda: convolution(dilation=2),
    "lstm": lstm,
    "gru": gru,
    "autocast": autocast_block,
    "foreach": foreach,
    "complex": complex_product,
    "repeat_interleave": lambda: with_inputs(
        lambda a, n: a.repeat_interleave(n, 0, output_size=5), r(2, 3), torch.tensor([2, 3]).to("musa")
    ),
}


def tensors_of(result):
    return [value for value in torch.utils._pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("name", BODIES)
def test_replay_equals_eager(name):
    torch.manual_seed(0)
    eager_body = BODIES[name]()
    torch.manual_seed(0)
    graph_body = BODIES[name]()
    with torch.no_grad():
        wanted = [(value.cpu(), value.stride()) for value in tensors_of(eager_body())]
        again = [value.cpu() for value in tensors_of(eager_body())]
        graph = torch.musa.MUSAGraph()
        with torch.musa.graph(graph):
            result = tensors_of(graph_body())
    for runs in (wanted, None):
        graph.replay()
        for index, value in enumerate(result):
            expected = runs[index][0] if runs else again[index]
            assert torch.equal(value.cpu(), expected) or (value.cpu().isnan() == expected.isnan()).all()
            assert value.cpu().nan_to_num().equal(expected.nan_to_num())
            assert value.stride() == wanted[index][1], (value.shape, value.stride(), wanted[index][1])


def training_pieces(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2))
    return model.to("musa")


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True, fused=True),
        lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01).to("musa"), capturable=True, foreach=False),
    ],
    ids=["sgd_foreach", "adamw_foreach", "adamw_fused", "adam_tensor_lr"],
)
def test_whole_training_step_in_one_graph(make):
    model = training_pieces(0)
    reference = copy.deepcopy(model)
    optimizers = [make(module.parameters()) for module in (model, reference)]
    data = torch.randn(4, 8, 5, generator=torch.Generator().manual_seed(1)).to("musa")
    static = data[0].clone()

    def step(module, optimizer, batch):
        optimizer.zero_grad(set_to_none=True)
        loss = module(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for module, optimizer in zip((model, reference), optimizers, strict=True):  # state of the optimizers
        torch.musa.manual_seed(2)
        step(module, optimizer, data[0])
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        loss = step(model, optimizers[0], static)
    torch.musa.manual_seed(3)
    losses = []
    for batch in data:
        static.copy_(batch)
        graph.replay()
        losses.append(loss.item())
    torch.musa.manual_seed(3)
    assert losses == [step(reference, optimizers[1], batch).item() for batch in data]
    for one, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(one.cpu(), other.cpu())
