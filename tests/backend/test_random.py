"""Each random operator against its exact distribution, over a million draws with a fixed seed."""

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch
from random_statistics import chi_square, kolmogorov_smirnov

DRAWS = 1_000_000
KS_LIMIT = 1.95  # probability 0.001 of a false alarm; the seed is fixed, so a pass stays one
CHI_LIMIT = 3.1

aten = torch.ops.aten


def generator(seed: int = 20260717) -> torch.Generator:
    return torch.Generator("musa").manual_seed(seed)


def empty(dtype=torch.float32, count: int = DRAWS) -> torch.Tensor:
    return torch.empty(count, dtype=dtype, device="musa")


def full(value: float, dtype=torch.float32, count: int = DRAWS) -> torch.Tensor:
    return torch.full((count,), value, dtype=dtype, device="musa")


def numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().double().numpy()


def normal_cdf(x):
    return torch.special.ndtr(torch.from_numpy(np.asarray(x))).numpy()


def gamma_cdf(shape: float) -> Callable:
    return lambda x: torch.special.gammainc(
        torch.full((len(x),), shape, dtype=torch.float64), torch.from_numpy(x)
    ).numpy()


def fused_dropout_slopes():
    values, mask = aten._fused_dropout(full(1.0), 0.7, generator())
    assert torch.equal(values.cpu(), mask.cpu().float() / 0.7)
    return mask


def rrelu_slopes(kind: str):
    x = full(-2.0)
    noise = torch.zeros_like(x)
    if kind == "out":
        y = aten.rrelu_with_noise.out(x, noise, 0.1, 0.6, True, generator(), out=torch.empty(0, device="musa"))
    elif kind == "inplace":
        y = aten.rrelu_with_noise_(x.clone(), noise, 0.1, 0.6, True, generator())
    else:
        y = aten.rrelu_with_noise(x, noise, 0.1, 0.6, True, generator())
    assert torch.equal(y.cpu(), -2 * noise.cpu())
    return (noise - 0.1) / 0.5


def out_of(op, *args, dtype=torch.float32, count: int = 0):
    out = torch.empty(count, dtype=dtype, device="musa")
    assert op(*args, generator=generator(), out=out) is out
    return out


def standardised(op, mean, std, *, out: bool):
    # The size of `out` takes part in normal's broadcasting (on every device, when std is a number).
    drawn = out_of(op, mean, std, count=DRAWS) if out else op(mean, std, generator=generator())
    return (drawn - mean) / std


def ramp(low: float, high: float) -> torch.Tensor:
    return torch.linspace(low, high, DRAWS, device="musa")


CONTINUOUS = {
    "uniform_": (lambda: empty().uniform_(generator=generator()), lambda x: x),
    "uniform_ double": (lambda: empty(torch.float64).uniform_(-3, 5, generator=generator()), lambda x: (x + 3) / 8),
    "uniform_ complex": (
        lambda: torch.view_as_real(empty(torch.complex64, DRAWS // 2).uniform_(generator=generator())),
        lambda x: x,
    ),
    "normal_": (lambda: empty().normal_(generator=generator()), normal_cdf),
    "normal_ double": (
        lambda: empty(torch.float64).normal_(2, 3, generator=generator()),
        lambda x: normal_cdf((x - 2) / 3),
    ),
    "normal_ complex": (
        lambda: torch.view_as_real(empty(torch.complex64, DRAWS // 2).normal_(generator=generator())),
        lambda x: normal_cdf(x * math.sqrt(2)),
    ),
    "exponential_": (lambda: empty().exponential_(2, generator=generator()), lambda x: 1 - np.exp(-2 * x)),
    "exponential_ double": (lambda: empty(torch.float64).exponential_(generator=generator()), lambda x: 1 - np.exp(-x)),
    "cauchy_": (lambda: empty().cauchy_(1, 2, generator=generator()), lambda x: 0.5 + np.arctan((x - 1) / 2) / np.pi),
    "cauchy_ double": (
        lambda: empty(torch.float64).cauchy_(generator=generator()),
        lambda x: 0.5 + np.arctan(x) / np.pi,
    ),
    "log_normal_": (
        lambda: empty().log_normal_(0.5, 0.25, generator=generator()),
        lambda x: normal_cdf((np.log(x) - 0.5) / 0.25),
    ),
    "log_normal_ double": (
        lambda: empty(torch.float64).log_normal_(generator=generator()),
        lambda x: normal_cdf((np.log(x) - 1) / 2),
    ),
    "normal.Tensor_float": (lambda: standardised(torch.normal, ramp(-9, 9), 2.5, out=False), normal_cdf),
    "normal.Tensor_float_out": (lambda: standardised(torch.normal, ramp(-9, 9), 2.5, out=True), normal_cdf),
    "normal.float_Tensor": (lambda: standardised(torch.normal, 4.0, ramp(0.5, 9), out=False), normal_cdf),
    "normal.float_Tensor_out": (lambda: standardised(torch.normal, 4.0, ramp(0.5, 9), out=True), normal_cdf),
    "normal.Tensor_Tensor": (lambda: standardised(torch.normal, ramp(-3, 3), ramp(0.5, 9), out=False), normal_cdf),
    "normal.Tensor_Tensor_out": (lambda: standardised(torch.normal, ramp(-3, 3), ramp(0.5, 9), out=True), normal_cdf),
    "rrelu_with_noise": (lambda: rrelu_slopes("plain"), lambda x: x),
    "rrelu_with_noise_": (lambda: rrelu_slopes("inplace"), lambda x: x),
    "rrelu_with_noise.out": (lambda: rrelu_slopes("out"), lambda x: x),
    "_standard_gamma": (lambda: aten._standard_gamma(full(2.5, torch.float64), generator()), gamma_cdf(2.5)),
    "_standard_gamma small": (lambda: aten._standard_gamma(full(0.3, torch.float64), generator()), gamma_cdf(0.3)),
    "_sample_dirichlet": (
        lambda: aten._sample_dirichlet(full(1.0, torch.float64, 3 * DRAWS).view(-1, 3), generator())[:, 1],
        lambda x: 1 - (1 - x) ** 2,  # Beta(1, 2)
    ),
    "_sample_dirichlet small": (
        lambda: aten._sample_dirichlet(full(0.5, torch.float64, 2 * DRAWS).view(-1, 2), generator())[:, 0],
        lambda x: 2 / np.pi * np.arcsin(np.sqrt(x)),  # Beta(1/2, 1/2)
    ),
}


@pytest.mark.parametrize("case", CONTINUOUS)
def test_continuous_distribution(case):
    draw, cdf = CONTINUOUS[case]
    statistic = kolmogorov_smirnov(numpy(draw()), cdf)
    print(f"{case}: KS {statistic:.3f} of {KS_LIMIT}")
    assert statistic < KS_LIMIT


def binomial_pmf(n: int, p: float) -> list[float]:
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def poisson_pmf(rate: float, classes: int) -> list[float]:
    pmf = [math.exp(k * math.log(rate) - rate - math.lgamma(k + 1)) for k in range(classes - 1)]
    return [*pmf, 1 - sum(pmf)]


def geometric_pmf(p: float, classes: int) -> list[float]:
    return [0, *(p * (1 - p) ** k for k in range(classes - 2)), (1 - p) ** (classes - 2)]


def bernoulli_by_tensor(dtype, probability_dtype):
    return empty(dtype).bernoulli_(full(0.3, probability_dtype), generator=generator())


def ordered_triples() -> tuple[torch.Tensor, list[float]]:
    """Three of four categories without replacement, as one class per ordered triple."""
    weights = [0.4, 0.1, 0.3, 0.2]
    rows = torch.tensor(weights, device="musa").expand(DRAWS // 4, 4)
    drawn = torch.multinomial(rows, 3, generator=generator()).cpu()
    triples = list(permutations(range(4), 3))
    exact = [
        weights[a] * weights[b] / (1 - weights[a]) * weights[c] / (1 - weights[a] - weights[b]) for a, b, c in triples
    ]
    code = drawn[:, 0] * 16 + drawn[:, 1] * 4 + drawn[:, 2]
    classes = torch.tensor([a * 16 + b * 4 + c for a, b, c in triples])
    return torch.searchsorted(classes, code), exact


def small_permutations() -> torch.Tensor:
    """Number of each of 20,000 permutations of 5 among the 120 there are."""
    source = generator()
    drawn = torch.stack([torch.randperm(5, generator=source, device="musa") for _ in range(20_000)]).cpu()
    codes = (drawn * torch.tensor([10_000, 1000, 100, 10, 1])).sum(1)
    return torch.searchsorted(torch.unique(codes), codes)


def multinomial_out(samples: int):
    weights = torch.tensor([1.0, 0.0, 5.0, 2.0, 2.0], dtype=torch.float64, device="musa")
    return out_of(torch.multinomial, weights, samples, True, dtype=torch.int64)


DISCRETE = {
    "random_": (lambda: empty(torch.uint8).random_(generator=generator()), [1 / 256] * 256),
    "random_ int8": (lambda: empty(torch.int8).random_(generator=generator()), [1 / 128] * 128),
    "random_ bfloat16": (lambda: empty(torch.bfloat16).random_(generator=generator()), [1 / 257] * 257),
    "random_ bool": (lambda: empty(torch.bool).random_(generator=generator()), [0.5, 0.5]),
    "random_.to": (lambda: empty(torch.int64).random_(37, generator=generator()), [1 / 37] * 37),
    "random_.from": (lambda: empty(torch.int32).random_(-5, 6, generator=generator()) + 5, [1 / 11] * 11),
    # 3 * 2**30 values: a remainder of 32 random bits would give the lower third of them twice as often.
    "random_.from wide": (
        lambda: empty(torch.int64).random_(0, 3 << 30, generator=generator()).cpu() >> 30,
        [1 / 3] * 3,
    ),
    "bernoulli_.float": (lambda: empty().bernoulli_(0.3, generator=generator()), [0.7, 0.3]),
    "bernoulli_.float int64": (lambda: empty(torch.int64).bernoulli_(0.01, generator=generator()), [0.99, 0.01]),
    "bernoulli_.Tensor": (lambda: bernoulli_by_tensor(torch.float32, torch.float32), [0.7, 0.3]),
    "bernoulli_.Tensor bool": (lambda: bernoulli_by_tensor(torch.bool, torch.float64), [0.7, 0.3]),
    "bernoulli.out": (lambda: out_of(torch.bernoulli, full(0.9)), [0.1, 0.9]),
    "geometric_": (lambda: empty().geometric_(0.25, generator=generator()), geometric_pmf(0.25, 60)),
    "geometric_ int32": (lambda: empty(torch.int32).geometric_(0.7, generator=generator()), geometric_pmf(0.7, 30)),
    "poisson": (lambda: torch.poisson(full(3.5), generator()), poisson_pmf(3.5, 40)),
    "poisson large": (lambda: torch.poisson(full(42.0, torch.float64), generator()), poisson_pmf(42, 150)),
    "binomial": (lambda: torch.binomial(full(20.0), full(0.3), generator()), binomial_pmf(20, 0.3)),
    "binomial large": (lambda: torch.binomial(full(100.0), full(0.4), generator()), binomial_pmf(100, 0.4)),
    "binomial likely": (lambda: torch.binomial(full(50.0), full(0.9), generator()), binomial_pmf(50, 0.9)),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([1.0, 0, 5, 2], device="musa"), DRAWS, True, generator=generator()),
        [1 / 8, 0, 5 / 8, 2 / 8],
    ),
    "multinomial single": (
        lambda: torch.multinomial(
            torch.tensor([3.0, 1, 4], dtype=torch.bfloat16, device="musa").expand(DRAWS, 3), 1, generator=generator()
        ),
        [3 / 8, 1 / 8, 4 / 8],
    ),
    "multinomial.out": (lambda: multinomial_out(DRAWS), [0.1, 0, 0.5, 0.2, 0.2]),
    "randperm.generator_out": (small_permutations, [1 / 120] * 120),
    "_fused_dropout": (fused_dropout_slopes, [0.3, 0.7]),
}


def counted(drawn: torch.Tensor, classes: int) -> np.ndarray:
    values = drawn.cpu().to(torch.int64).flatten()
    assert int(values.min()) >= 0
    counts = torch.bincount(values.clamp(max=classes - 1), minlength=classes).numpy()
    return counts


@pytest.mark.parametrize("case", DISCRETE)
def test_discrete_distribution(case):
    draw, pmf = DISCRETE[case]
    counts = counted(draw(), len(pmf))
    possible = np.asarray(pmf) > 0
    assert counts[~possible].sum() == 0
    statistic = chi_square(counts[possible], np.asarray(pmf)[possible])
    print(f"{case}: chi-square {statistic:.3f} of {CHI_LIMIT}")
    assert statistic < CHI_LIMIT


def test_multinomial_without_replacement():
    drawn, exact = ordered_triples()
    statistic = chi_square(counted(drawn, len(exact)), exact)
    print(f"ordered triples: chi-square {statistic:.3f} of {CHI_LIMIT}")
    assert statistic < CHI_LIMIT


def operators_with_a_generator() -> set[str]:
    """What the dispatcher says must be native: takes a generator and no composite stands behind it."""
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.partition(".")
        if not name.startswith("aten::"):
            continue
        takes_generator = any("Generator" in str(a.type) for a in torch._C._get_schema(base, overload).arguments)
        composite = any(
            torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
            for key in (
                "CompositeExplicitAutograd",
                "CompositeImplicitAutograd",
                "CompositeExplicitAutogradNonFunctional",
            )
        )
        if takes_generator and not composite:
            found.add(name.removeprefix("aten::"))
    return found


def test_every_random_operator_is_native_and_tested():
    needed = operators_with_a_generator()
    assert len(needed) == 29
    for name in needed:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "PrivateUse1"), name
    assert needed <= {case.split()[0] for case in (*CONTINUOUS, *DISCRETE)}
