"""Random state of a card: seeds, 16 bytes of state, forks; which numbers an element gets."""

import struct

import numpy as np
import pytest
import torch
from random_statistics import philox
from torch.utils.checkpoint import checkpoint

SEED, OFFSET = 0xA4093822299F31D0, 4096


def generator(seed: int = 1, device: str = "musa") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def state_of(seed: int, offset: int) -> torch.Tensor:
    return torch.tensor(list(struct.pack("<QQ", seed, offset)), dtype=torch.uint8)


def draw(source: torch.Generator, count: int = 8) -> list[float]:
    return torch.rand(count, device=source.device, generator=source).tolist()


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_reference_philox_gives_the_published_vectors(counter, key, words):
    """The known answers that Random123 publishes for philox4x32-10."""
    assert philox(np.array([counter], dtype=np.uint32), key)[0].tolist() == words


@pytest.mark.parametrize("count", [1, 3, 64, 1000, 100_001])
@pytest.mark.parametrize("seed", [0, SEED, 2**64 - 1])
def test_element_draws_from_its_own_counter(count, seed):
    """Pair i of 64-bit numbers is the Philox block of counter (offset / 4, i) under the seed as key."""
    source = torch.Generator("musa")
    source.set_state(state_of(seed, OFFSET))
    bits = torch.empty(count, dtype=torch.int64, device="musa").random_(-(2**63), None, generator=source)
    blocks = (count + 1) // 2
    counter = np.zeros((blocks, 4), dtype=np.uint32)
    counter[:, 0] = OFFSET // 4
    counter[:, 2] = np.arange(blocks)
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))
    expected = np.ascontiguousarray(words).view(np.int64).ravel()[:count]
    assert np.array_equal(bits.cpu().numpy(), expected)
    assert source.get_offset() == OFFSET + 4  # one step, whatever the size


def test_state_is_seed_and_offset():
    source = generator(SEED >> 1)
    assert source.device == torch.device("musa", torch.musa.current_device())
    assert (source.initial_seed(), source.get_offset()) == (SEED >> 1, 0)
    state = source.get_state()
    assert (state.dtype, state.device.type, state.numel()) == (torch.uint8, "cpu", 16)
    assert torch.equal(state, state_of(SEED >> 1, 0))
    draw(source)
    assert torch.equal(source.get_state(), state_of(SEED >> 1, 4))
    source.set_offset(400)
    assert torch.equal(source.get_state(), state_of(SEED >> 1, 400))
    source.manual_seed(5)
    assert torch.equal(source.get_state(), state_of(5, 0))
    source.set_state(state_of(9, 8)[:8])
    assert torch.equal(source.get_state(), state_of(9, 0))


def test_default_seed_is_that_of_every_device():
    assert torch.Generator("musa").initial_seed() == torch.Generator().initial_seed()


def test_bad_states_are_refused():
    source = generator()
    with pytest.raises(RuntimeError, match="offset must be a multiple of 4"):
        source.set_offset(3)
    with pytest.raises(RuntimeError, match="must be a multiple of 4"):
        source.set_state(state_of(1, 6))
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        source.set_state(torch.zeros(12, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"RNG state must be a torch\.ByteTensor"):
        source.set_state(torch.zeros(16))
    assert torch.equal(source.get_state(), state_of(1, 0))


def test_restored_state_repeats_the_numbers():
    source = generator()
    draw(source)
    state = source.get_state()
    first = draw(source), torch.randn(5, device="musa", generator=source).tolist()
    second = draw(source), torch.randn(5, device="musa", generator=source).tolist()
    source.set_state(state)
    assert (draw(source), torch.randn(5, device="musa", generator=source).tolist()) == first
    assert first != second


def test_seed_is_fresh():
    source = generator()
    seeds = {source.seed() for _ in range(20)}
    assert len(seeds) == 20
    assert source.initial_seed() in seeds


def test_clones_part_and_graph_states_stay_together():
    source = generator()
    clone = source.clone_state()
    assert draw(clone) == draw(source)
    draw(clone)
    assert clone.get_offset() == source.get_offset() + 4
    shared = source.graphsafe_get_state()
    draw(shared)
    assert source.get_offset() == shared.get_offset() == 8
    other = generator(99)
    other.graphsafe_set_state(shared)
    draw(other)
    assert (source.initial_seed(), source.get_offset()) == (other.initial_seed(), 12)
    with pytest.raises(RuntimeError, match="Expected a 'musa' generator as the state"):
        other.graphsafe_set_state(torch.Generator())


def test_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="Expected a 'musa' device type for generator but found 'cpu'"):
        torch.rand(3, device="musa", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'musa'"):
        torch.rand(3, generator=generator())
    with pytest.raises(RuntimeError, match="Expected a generator on 'musa:0' but found one on 'musa:1'"):
        torch.rand(3, device="musa:0", generator=generator(device="musa:1"))
    with pytest.raises(RuntimeError, match="Expected a 'musa:0' generator device but found 'cpu'"):
        torch.randperm(3, generator=torch.Generator(), out=torch.empty(3, dtype=torch.int64, device="musa:0"))


def test_manual_seed_governs_every_card():
    cards = [torch.device("musa", index) for index in range(2)]
    torch.manual_seed(7)
    first = [torch.rand(6, device=card).tolist() for card in cards]
    assert first[0] == first[1]
    torch.rand(3, device=cards[1])
    assert torch.rand(6, device=cards[0]).tolist() != first[0]
    torch.manual_seed(7)
    assert [torch.rand(6, device=card).tolist() for card in cards] == first


def test_cards_are_independent():
    torch.musa.manual_seed_all(3)
    before = torch.musa.get_rng_state(1)
    torch.rand(4, device="musa:0")
    assert torch.equal(torch.musa.get_rng_state(1), before)
    assert not torch.equal(torch.musa.get_rng_state(0), before)


def test_the_cpu_generator_is_left_alone():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    torch.rand(5, device="musa")
    torch.nn.functional.dropout(torch.ones(5, device="musa"))
    torch.poisson(torch.ones(5, device="musa"))
    assert torch.equal(torch.get_rng_state(), state)


def test_fork_rng_restores():
    torch.musa.manual_seed(11)
    before = torch.musa.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="musa"):
        inside = torch.rand(4, device="musa:0")
        assert not torch.equal(torch.musa.get_rng_state(), before)
    assert torch.equal(torch.musa.get_rng_state(), before)
    assert torch.equal(torch.rand(4, device="musa:0"), inside)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_recomputes_the_same_dropout(use_reentrant):
    layer = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 16)).to("musa")
    x = torch.randn(8, 16, device="musa", requires_grad=True)
    torch.musa.manual_seed(5)
    layer(x).square().sum().backward()
    plain = x.grad
    x.grad = None
    torch.musa.manual_seed(5)
    checkpoint(layer, x, use_reentrant=use_reentrant).square().sum().backward()
    assert torch.equal(x.grad, plain)


DRAWS = {
    "uniform": lambda x, g: x.uniform_(generator=g),
    "normal": lambda x, g: x.normal_(generator=g),
    "random": lambda x, g: x.random_(generator=g),
    "bernoulli": lambda x, g: x.bernoulli_(0.5, generator=g),
    "bernoulli tensor": lambda x, g: x.bernoulli_(torch.full(x.shape[-1:], 0.25, device=x.device), generator=g),
    "exponential": lambda x, g: x.exponential_(generator=g),
    "cauchy": lambda x, g: x.cauchy_(generator=g),
    "geometric": lambda x, g: x.geometric_(0.25, generator=g),
    "log normal": lambda x, g: x.log_normal_(generator=g),
    "poisson": lambda x, g: torch.poisson(x.fill_(5), generator=g),
    "binomial": lambda x, g: torch.binomial(x.fill_(30), torch.full_like(x, 0.5), generator=g),
    "gamma": lambda x, g: torch.ops.aten._standard_gamma(x.fill_(2), g),
    "dirichlet": lambda x, g: torch.ops.aten._sample_dirichlet(x.fill_(2), g),
    "dropout": lambda x, g: torch.ops.aten._fused_dropout(x.fill_(2), 0.5, g)[0],
    "rrelu": lambda x, g: torch.ops.aten.rrelu_with_noise(x.fill_(-1), torch.empty_like(x), 0.1, 0.9, True, g),
    "multinomial": lambda x, g: torch.multinomial(x.fill_(2).flatten(0, -2), 3, False, generator=g),
    "randperm": lambda x, g: torch.randperm(x.numel(), generator=g, device=x.device),
}


@pytest.mark.parametrize("case", DRAWS)
def test_numbers_do_not_depend_on_threads(case):
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(DRAWS[case](torch.empty(300, 7, 101, device="musa"), generator()).cpu())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


LAYOUTS = {
    "transposed": lambda d: torch.zeros(3, 5, 4, 6, device=d).permute(2, 0, 3, 1),
    "channels last": lambda d: torch.zeros(4, 3, 6, 5, device=d).contiguous(memory_format=torch.channels_last),
    "strided": lambda d: torch.zeros(4, 3, 6, 15, device=d)[..., 1::3],
    "offset": lambda d: torch.zeros(5, 3, 6, 5, device=d)[1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", [case for case in DRAWS if case != "randperm"])
def test_numbers_do_not_depend_on_strides(case, layout):
    plain = DRAWS[case](torch.zeros(4, 3, 6, 5, device="musa"), generator())
    strided = LAYOUTS[layout]("musa")
    base = strided._base if strided._is_view() else strided
    outside = base.count_nonzero().item() if base.numel() > strided.numel() else None
    assert torch.equal(DRAWS[case](strided, generator()), plain)
    if outside is not None:  # nothing beside the view was written
        assert base.count_nonzero() == strided.count_nonzero()


@pytest.mark.parametrize("case", [case for case in DRAWS if case != "multinomial"])
def test_empty_tensors(case):
    assert DRAWS[case](torch.empty(0, 3, device="musa"), generator()).numel() == 0


def test_out_is_resized():
    source = generator()
    out = torch.empty(0, device="musa")
    assert torch.rand(2, 3, generator=source, out=out, device="musa") is out
    assert torch.bernoulli(torch.full((4, 5), 0.5, device="musa"), generator=source, out=out[:0]).shape == (4, 5)
    picks = torch.empty(0, dtype=torch.int64, device="musa")
    torch.multinomial(torch.ones(2, 9, device="musa"), 4, generator=source, out=picks)
    assert picks.shape == (2, 4)
    assert all(len(set(row)) == 4 for row in picks.tolist())
    order = torch.empty(0, dtype=torch.int32, device="musa")
    torch.randperm(6, generator=source, out=order)
    assert sorted(order.tolist()) == list(range(6))
    for mean, std in [(torch.zeros(3, 1), torch.ones(4)), (0.0, torch.ones(3, 4)), (torch.zeros(3, 4), 1.0)]:
        arguments = [a.to("musa") if isinstance(a, torch.Tensor) else a for a in (mean, std)]
        out = torch.empty(3, 4, device="musa")
        assert torch.normal(*arguments, generator=source, out=out) is out
        assert out.count_nonzero() == 12


def test_steps_do_not_repeat_numbers():
    """Also across the offsets that a distributed tracker skips, which are multiples of 4."""
    source = generator()
    seen = []
    for offset in (0, 4, 8, 400):
        source.set_offset(offset)
        seen.append(torch.empty(5000, dtype=torch.int64, device="musa").random_(generator=source))
    assert torch.cat(seen).unique().numel() == 20_000


def test_vmap_draws_as_told():
    x = torch.zeros(6, 50, device="musa")

    def noisy(row):
        return row + torch.rand_like(row)

    different = torch.vmap(noisy, randomness="different")(x)
    same = torch.vmap(noisy, randomness="same")(x)
    assert different.unique(dim=0).shape[0] == 6
    assert same.unique(dim=0).shape[0] == 1
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(noisy)(x)
