"""torch.ops.musa.gated_delta_rule against the recurrence in float64."""

import pytest
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
Problem = dict[str, torch.Tensor]


def problem(
    batch: int, tokens: int, heads: int, keys: int, values: int, *, per_channel: bool = True, seed: int = 0
) -> Problem:
    random = torch.Generator().manual_seed(seed)
    shape = (batch, tokens, heads)
    decay_shape = (*shape, keys) if per_channel else shape
    return {
        "q": torch.randn(*shape, keys, generator=random),
        "k": torch.randn(*shape, keys, generator=random),
        "v": torch.randn(*shape, values, generator=random),
        "decay": -5 * torch.rand(decay_shape, generator=random) ** 3,
        "beta": torch.rand(shape, generator=random),
        "state": torch.randn(batch, heads, keys, values, generator=random),
    }


def in_dtype(given: Problem, dtype: torch.dtype) -> Problem:
    return {name: x.to(dtype) if name in ("q", "k", "v") else x for name, x in given.items()}


def exactly(given: Problem, scale: float | None = None, normalise: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v, decay, beta, state = (given[name].double() for name in ("q", "k", "v", "decay", "beta", "state"))
    if normalise:
        q = q / (q.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        k = k / (k.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    out = torch.zeros_like(v)
    state = state.clone()
    for row in range(q.shape[0]):
        for head in range(q.shape[2]):
            s = state[row, head]
            for t in range(q.shape[1]):
                at = (row, t, head)
                s = torch.diag(decay[at].exp().expand(q.shape[-1])) @ s
                s = s + torch.outer(k[at], beta[at] * (v[at] - s.T @ k[at]))
                out[at] = s.T @ q[at]
            state[row, head] = s
    return out, state


def on_musa(given: Problem, **options: object) -> tuple[torch.Tensor, torch.Tensor]:
    moved = {name: x.to("musa") for name, x in given.items()}
    out, state = torch.ops.musa.gated_delta_rule(**moved, qk_l2norm=True, **options)
    return out.cpu(), state.cpu()


def assert_near(got: torch.Tensor, exact: torch.Tensor) -> None:
    """To float32's rounding of some hundred sums, and that of the result's dtype."""
    bound = 2e-5 + torch.finfo(got.dtype).eps
    torch.testing.assert_close(got.double(), exact, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (2, 5, 3, 33, 17), (1, 20, 2, 16, 70), (3, 1, 2, 128, 128)])
def test_values_are_the_recurrences(sizes: tuple[int, ...], per_channel: bool, dtype: torch.dtype) -> None:
    given = in_dtype(problem(*sizes, per_channel=per_channel), dtype)
    for got, exact in zip(on_musa(given), exactly(given), strict=True):
        assert_near(got, exact)
    for got, exact in zip(torch.ops.musa.gated_delta_rule(**given, qk_l2norm=True), exactly(given), strict=True):
        assert_near(got, exact)


def test_scale_and_lengths_are_optional() -> None:
    given = problem(1, 6, 2, 8, 5)
    given["k"] /= 4
    moved = {name: x.to("musa") for name, x in given.items()}
    got = torch.ops.musa.gated_delta_rule(**moved, scale=0.5)
    for ours, exact in zip(got, exactly(given, scale=0.5, normalise=False), strict=True):
        assert_near(ours.cpu(), exact)


def test_every_split_gives_the_same_bits() -> None:
    given = problem(2, 9, 2, 20, 37)
    out, state = on_musa(given)
    for split in range(10):
        first = {name: x[:, :split] if name != "state" else x for name, x in given.items()}
        second = {name: x[:, split:] for name, x in given.items() if name != "state"}
        out1, middle = on_musa(first)
        out2, last = on_musa({**second, "state": middle})
        assert torch.equal(torch.cat([out1, out2], 1), out)
        assert torch.equal(last, state)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_packed_sequences_are_those_alone(index: torch.dtype) -> None:
    given = problem(1, 12, 2, 9, 11)
    given["state"] = torch.randn(4, 2, 9, 11, generator=torch.Generator().manual_seed(1))
    bounds = [0, 5, 5, 6, 12]
    lengths = torch.tensor(bounds, dtype=index)
    got = on_musa(given, cu_seqlens=lengths.to("musa"))
    on_cpu = torch.ops.musa.gated_delta_rule(**given, cu_seqlens=lengths, qk_l2norm=True)
    for n in range(4):
        part = slice(bounds[n], bounds[n + 1])
        alone = on_musa({name: x[:, part] if name != "state" else x[n : n + 1] for name, x in given.items()})
        assert torch.equal(got[0][:, part], alone[0])
        assert torch.equal(got[1][n : n + 1], alone[1])
    for ours, reference in zip(got, on_cpu, strict=True):
        assert_near(ours, reference.double())


def test_the_number_of_threads_changes_no_bit() -> None:
    given = problem(2, 7, 3, 64, 96)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = on_musa(given)
        torch.set_num_threads(2)
        two = on_musa(given)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])


def test_the_strongest_decay_and_repeated_keys_stay_finite() -> None:
    given = problem(1, 70, 1, 16, 16)
    given["decay"].fill_(-5)
    given["beta"].fill_(1)
    for got, exact in zip(on_musa(given), exactly(given), strict=True):
        assert_near(got, exact)
    given["decay"].zero_()
    given["k"][:] = given["k"][:, :1].clone()
    for got, exact in zip(on_musa(given), exactly(given), strict=True):
        assert_near(got, exact)


def test_the_given_state_is_left_alone_and_nothing_of_nothing_is_empty() -> None:
    given = problem(2, 0, 2, 4, 3)
    out, state = on_musa(given)
    assert out.shape == (2, 0, 2, 3)
    assert torch.equal(state, given["state"])
    given = problem(1, 3, 1, 4, 3)
    before = given["state"].to("musa")
    torch.ops.musa.gated_delta_rule(**{n: x.to("musa") for n, x in given.items() if n != "state"}, state=before)
    assert torch.equal(before.cpu(), given["state"])


def test_gradients_are_the_formulas() -> None:
    given = {name: x.double().requires_grad_() for name, x in problem(1, 3, 1, 3, 2).items()}

    def rule(*arguments: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ops.musa.gated_delta_rule(*arguments, qk_l2norm=True)  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(rule, tuple(given.values()))
    exact = torch.autograd.grad(sum(x.square().sum() for x in rule(*given.values())), list(given.values()))
    moved = [x.detach().float().to("musa").requires_grad_() for x in given.values()]
    got = torch.autograd.grad(sum(x.square().sum() for x in rule(*moved)), moved)
    for ours, gradient in zip(got, exact, strict=True):
        torch.testing.assert_close(ours.cpu().double(), gradient, rtol=1e-4, atol=1e-5)


def test_meta_tensors_tell_shapes_and_dtypes() -> None:
    given = {name: x.to("meta") for name, x in in_dtype(problem(2, 5, 3, 4, 6), torch.bfloat16).items()}
    out, state = torch.ops.musa.gated_delta_rule(**given)
    assert (out.shape, out.dtype, out.device.type) == ((2, 5, 3, 6), torch.bfloat16, "meta")
    assert (state.shape, state.dtype) == ((2, 3, 4, 6), torch.float32)


@pytest.mark.parametrize("device", ["cpu", "musa"])
def test_wrong_shapes_and_lengths_are_told(device: str) -> None:
    given = {name: x.to(device) for name, x in problem(1, 4, 2, 3, 5).items()}
    rule = torch.ops.musa.gated_delta_rule
    with pytest.raises(ValueError, match="state of shape"):
        rule(**{**given, "state": given["state"].transpose(-1, -2)})
    with pytest.raises(ValueError, match="takes q and k of shape"):
        rule(**{**given, "k": given["k"][:, :2]})
    with pytest.raises(ValueError, match="decay of that shape"):
        rule(**{**given, "decay": given["decay"][..., :1]})
    with pytest.raises(TypeError, match="one floating dtype"):
        rule(**{**given, "v": given["v"].half()})
    with pytest.raises(ValueError, match="ascend from 0"):
        rule(**given, cu_seqlens=torch.tensor([0, 3], device=device))
