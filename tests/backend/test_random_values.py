"""What random operators may and may not return: ranges, moments by parameter, borders, permutations, errors."""

import math

import numpy as np
import pytest
import torch

DRAWS = 1_000_000
aten = torch.ops.aten


def generator(seed: int = 20260717) -> torch.Generator:
    return torch.Generator("musa").manual_seed(seed)


def empty(dtype=torch.float32, count: int = DRAWS) -> torch.Tensor:
    return torch.empty(count, dtype=dtype, device="musa")


def numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.cpu().double().numpy()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_uniform_stays_below_its_end(dtype):
    drawn = empty(dtype).uniform_(generator=generator())
    assert drawn.min().item() >= 0
    assert drawn.max().item() < 1
    assert abs(numpy(drawn).mean() - 0.5) < 0.002
    shifted = empty(dtype).uniform_(-2, 3, generator=generator())
    assert shifted.min().item() >= -2
    assert shifted.max().item() < 3
    assert (empty(dtype, 9).uniform_(4, 4) == 4).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_exponential_is_never_zero(dtype):
    drawn = empty(dtype, 1 << 23).exponential_(3, generator=generator())
    assert drawn.min().item() > 0
    assert (empty(dtype, 4).exponential_(math.inf) == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("draw", "mean", "variance"),
    [
        (lambda x, g: x.normal_(1, 2, generator=g), 1, 4),
        (lambda x, g: x.exponential_(0.5, generator=g), 2, 4),
        (lambda x, g: x.log_normal_(0, 0.5, generator=g), math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25)),
        (lambda x, g: x.geometric_(0.5, generator=g), 2, 2),
        (lambda x, g: torch.poisson(x.fill_(4), g), 4, 4),
        (lambda x, g: torch.binomial(x.fill_(16), torch.full_like(x, 0.25), g), 4, 3),
        (lambda x, g: aten._standard_gamma(x.fill_(3), g), 3, 3),
        (lambda x, g: x.bernoulli_(torch.full_like(x, 0.5), generator=g), 0.5, 0.25),
    ],
    ids=["normal", "exponential", "log_normal", "geometric", "poisson", "binomial", "gamma", "bernoulli"],
)
def test_moments_of_narrow_dtypes(dtype, draw, mean, variance):
    drawn = draw(empty(dtype), generator())
    assert drawn.dtype == dtype
    values = numpy(drawn)
    assert abs(values.mean() - mean) < 0.01 * max(1, mean)
    assert abs(values.var() - variance) < 0.03 * max(1, variance)


def test_moments_follow_parameter_tensors():
    shapes = torch.tensor([0.1, 0.5, 1.0, 3.0, 50.0], dtype=torch.float64, device="musa")
    gammas = numpy(aten._standard_gamma(shapes.expand(200_000, 5), generator()))
    np.testing.assert_allclose(gammas.mean(0), shapes.cpu(), rtol=0.02)
    np.testing.assert_allclose(gammas.var(0), shapes.cpu(), rtol=0.06)
    rates = torch.tensor([0.0, 0.01, 1.0, 9.9, 10.1, 1e5, 1e14], dtype=torch.float64, device="musa")
    poissons = numpy(torch.poisson(rates.expand(200_000, 7), generator()))
    np.testing.assert_allclose(poissons.mean(0), rates.cpu(), rtol=0.05)
    np.testing.assert_allclose(poissons.var(0), rates.cpu(), rtol=0.05)
    counts = torch.tensor([0.0, 3.0, 1e3, 1e6, 1e15], dtype=torch.float64, device="musa")
    probabilities = torch.tensor([[0.25], [0.5], [0.999]], dtype=torch.float64, device="musa")
    binomials = numpy(torch.binomial(counts.expand(100_000, 3, 5), probabilities, generator()))
    exact = (counts * probabilities).cpu().numpy()
    np.testing.assert_allclose(binomials.mean(0), exact, rtol=0.01)
    np.testing.assert_allclose(binomials.var(0), (exact * (1 - probabilities.cpu().numpy())), rtol=0.1)
    concentrations = torch.tensor([0.001, 0.002, 0.005], device="musa")
    simplex = aten._sample_dirichlet(concentrations.expand(200_000, 3), generator())
    np.testing.assert_allclose(numpy(simplex.sum(-1)), 1, rtol=1e-5)
    np.testing.assert_allclose(numpy(simplex).mean(0), [1 / 8, 2 / 8, 5 / 8], rtol=0.02)


def test_samplers_at_the_border():
    nan, inf = math.nan, math.inf

    def musa(*values: float) -> torch.Tensor:
        return torch.tensor(values, device="musa")

    assert torch.poisson(musa(0.0, inf)).tolist() == [0, inf]
    counts, probabilities = musa(5.0, 5, -1, 0, 7, 3), musa(0.0, 1, 0.5, 0.5, 2, -1)
    assert torch.binomial(counts, probabilities).tolist() == [0, 5, 0, 0, 7, 0]
    assert torch.binomial(musa(nan, 5.0), musa(0.5, nan)).isnan().all()
    assert (aten._standard_gamma(musa(0.0, 1e-30)) == torch.finfo(torch.float32).tiny).all()
    with pytest.raises(RuntimeError, match="invalid Poisson rate, expected rate to be non-negative"):
        torch.poisson(musa(1.0, -1.0))
    with pytest.raises(ValueError, match="binomial only supports floating-point dtypes for count, got: Long"):
        torch.binomial(torch.ones(3, dtype=torch.int64, device="musa"), musa(1.0))


def test_large_permutation():
    count = 1_000_000
    drawn = torch.randperm(count, generator=generator(), device="musa").cpu()
    assert torch.equal(drawn.sort().values, torch.arange(count))
    positions = (drawn.double() / count).numpy()
    assert abs(np.corrcoef(positions[:-1], positions[1:])[0, 1]) < 0.004
    assert abs(np.corrcoef(positions, np.arange(count))[0, 1]) < 0.004
    first = torch.empty(count, dtype=torch.int32, device="musa")
    assert torch.equal(torch.randperm(count, generator=generator(), out=first).cpu(), drawn.int())
    assert torch.randperm(2049, dtype=torch.float16, device="musa").sum().item() > 0
    with pytest.raises(RuntimeError, match="n cannot be greater than 2049 for Half type"):
        torch.randperm(2050, dtype=torch.float16, device="musa")


def test_errors_are_those_of_the_cpu():
    cases = [
        lambda d: torch.empty(3, device=d).uniform_(2, 1),
        lambda d: torch.empty(3, device=d, dtype=torch.float16).uniform_(0, 1e6),
        lambda d: torch.empty(3, device=d).normal_(0, -1),
        lambda d: torch.empty(3, device=d, dtype=torch.int8).random_(0, 1000),
        lambda d: torch.empty(3, device=d).random_(5, 5),
        lambda d: torch.empty(3, device=d).exponential_(0),
        lambda d: torch.empty(3, device=d, dtype=torch.int32).exponential_(),
        lambda d: torch.empty(3, device=d).cauchy_(0, 0),
        lambda d: torch.empty(3, device=d, dtype=torch.int32).cauchy_(),
        lambda d: torch.empty(3, device=d).geometric_(1),
        lambda d: torch.empty(3, device=d).log_normal_(0, 0),
        lambda d: torch.empty(3, device=d).bernoulli_(1.5),
        lambda d: torch.empty(1, device=d).expand(3).uniform_(),
        lambda d: torch.empty(1, device=d).expand(3).normal_(),
        lambda d: torch.empty(1, device=d).expand(3).bernoulli_(0.5),
        lambda d: torch.normal(torch.zeros(3, device=d), -torch.ones(3, device=d)),
        lambda d: torch.multinomial(torch.tensor([-1.0, 2], device=d), 1),
        lambda d: torch.multinomial(torch.tensor([-1.0, 2], device=d), 2, True),
        lambda d: torch.multinomial(torch.tensor([math.inf, 2], device=d), 2, True),
        lambda d: torch.multinomial(torch.zeros(2, device=d), 2, True),
        lambda d: torch.multinomial(torch.zeros(2, 2, device=d), 1),
        lambda d: torch.multinomial(torch.ones(2, device=d), 3),
        lambda d: torch.multinomial(torch.ones(2, 2, 2, device=d), 1),
        lambda d: torch.multinomial(torch.ones(3, dtype=torch.int64, device=d), 1),
        lambda d: aten.rrelu_with_noise(torch.ones(3, device=d), torch.ones(2, device=d)),
    ]
    for index, case in enumerate(cases):
        with pytest.raises((RuntimeError, ValueError)) as on_cpu:
            case("cpu")
        with pytest.raises(type(on_cpu.value)) as on_musa:
            case("musa")
        assert str(on_musa.value).splitlines()[0] == str(on_cpu.value).splitlines()[0], index
    with pytest.raises(RuntimeError, match="Expected p_in >= 0 && p_in <= 1 to be true"):
        torch.bernoulli(torch.tensor([0.5, 1.5], device="musa"))
    with pytest.raises(RuntimeError, match="same device"):
        torch.normal(torch.zeros(3, device="musa"), torch.ones(3))
