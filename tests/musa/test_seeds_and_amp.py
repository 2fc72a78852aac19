"""torch.musa: random state and mixed precision under CUDA's names."""

import pytest
import torch


def draw(device="musa"):
    return torch.rand(4, device=device).tolist()


def test_seed_and_state_repeat_numbers():
    torch.musa.manual_seed(7)
    state, first = torch.musa.get_rng_state(), draw()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    assert state.numel() == 16
    assert torch.musa.initial_seed() == 7
    torch.musa.set_rng_state(state)
    assert draw() == first
    torch.manual_seed(7)
    assert draw() == first
    assert draw() != first


def test_all_cards_are_seeded_and_saved():
    torch.musa.manual_seed_all(3)
    states = torch.musa.get_rng_state_all()
    assert len(states) == torch.musa.device_count() == len(torch.musa.default_generators)
    first = [draw("musa:0"), draw("musa:1")]
    torch.musa.set_rng_state_all(states)
    assert [draw("musa:0"), draw("musa:1")] == first
    torch.musa.seed_all()
    assert torch.musa.default_generators[0].initial_seed() == torch.musa.default_generators[1].initial_seed() != 3


def test_fork_rng_puts_the_state_back():
    torch.musa.manual_seed(5)
    state = torch.musa.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="musa"):
        draw()
        torch.musa.seed()
    assert torch.equal(torch.musa.get_rng_state(), state)


def test_a_seed_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="invalid literal"):
        torch.musa.manual_seed("seven")


@pytest.mark.parametrize("autocast", [torch.musa.amp.autocast, lambda **kw: torch.autocast("musa", **kw)])
def test_autocast_computes_in_the_asked_dtype(autocast):
    a = torch.ones(2, 2, device="musa")
    with autocast(dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
        with autocast(enabled=False):
            assert (a @ a).dtype == torch.float32
    assert torch.bfloat16 in torch.musa.get_amp_supported_dtype()


def test_grad_scaler_skips_a_step_with_infinities():
    scaler = torch.musa.amp.GradScaler(init_scale=4.0, growth_interval=1)
    weight = torch.ones(2, device="musa", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1, 1]
    assert scaler.get_scale() == 2.0
    optimizer.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0, 0]
    assert scaler.get_scale() == 4.0


def test_custom_functions_under_autocast():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.musa.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.musa.amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    x = torch.ones(2, device="musa", dtype=torch.float16, requires_grad=True)
    with torch.musa.amp.autocast(dtype=torch.float16):
        out = Double.apply(x)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert x.grad.tolist() == [2, 2]
