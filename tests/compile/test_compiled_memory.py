"""Where the results of compiled code lie: in the card's memory, on their arguments' storages, and freed in time."""

import gc

import pytest
import torch
from compiled import MUSA, assert_close, copies


def test_mutated_arguments_views_and_returned_arguments_keep_their_identity():
    def f(x, buffer):
        buffer.add_(x.sum(0))
        x.mul_(2)
        return x[1:], buffer, x.t()

    x, buffer = torch.randn(4, 6), torch.zeros(6)
    card, card_buffer = x.to(MUSA), buffer.to(MUSA)
    version = card._version
    tail, same, turned = torch.compile(f, fullgraph=True)(card, card_buffer)
    assert_close((tail, same, turned), f(x, buffer))
    assert_close((card, card_buffer), (x, buffer))
    assert same is card_buffer
    assert tail.data_ptr() == card[1:].data_ptr()
    assert tail.untyped_storage()._cdata == turned.untyped_storage()._cdata == card.untyped_storage()._cdata
    assert card._version > version
    tail.zero_()
    assert not card[1:].any()
    assert copies() == 0


def test_results_that_share_memory_share_a_storage():
    def f(x):
        y = x + 1
        return y, y[::2], y.view(2, 2)

    whole, half, square = torch.compile(f, fullgraph=True)(torch.zeros(4, device=MUSA))
    assert whole.untyped_storage()._cdata == half.untyped_storage()._cdata == square.untyped_storage()._cdata
    whole.fill_(7)
    assert half.eq(7).all()
    assert square.eq(7).all()


def test_aliased_arguments_are_seen_as_aliases():
    def f(a, b):
        a.add_(1)
        return b * 2

    base = torch.zeros(4, device=MUSA)
    assert_close(torch.compile(f, fullgraph=True)(base[:3], base[1:]), torch.tensor([2.0, 2.0, 0.0]))


def test_results_and_workspaces_come_from_the_card_and_go_back():
    f = torch.compile(lambda x: (x.sin() @ x).cos(), fullgraph=True)
    x = torch.randn(256, 256, device=MUSA)
    f(x)
    gc.collect()
    before = torch.musa.memory_allocated()
    torch.musa.reset_peak_memory_stats()
    y = f(x)
    assert torch.musa.memory_allocated() - before == y.untyped_storage().nbytes()
    assert torch.musa.max_memory_allocated() > torch.musa.memory_allocated()  # what lay between input and result
    del y
    assert torch.musa.memory_allocated() == before
    assert copies() == 0


def test_running_out_of_the_cards_memory_raises_and_leaves_the_card_usable():
    f = torch.compile(lambda x, n: x.expand(n, -1) + 1, fullgraph=True, dynamic=True)
    x = torch.zeros(1 << 20, device=MUSA)
    assert f(x, 2).shape == (2, 1 << 20)
    torch.musa.set_per_process_memory_fraction(0.001)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            f(x, 4096)
    finally:
        torch.musa.set_per_process_memory_fraction(1.0)
    assert f(x, 3).sum().item() == 3 << 20


def test_tensor_made_outside_on_the_host_stays_there_after_an_error():
    f = torch.compile(lambda x, i: x[i] * 2, fullgraph=True)
    x = torch.arange(4.0, device=MUSA)
    assert_close(f(x, torch.tensor([1, 2], device=MUSA)), torch.tensor([2.0, 4.0]))
    allocated = torch.musa.memory_allocated()
    with pytest.raises((RuntimeError, IndexError), match=r"out of bounds|index"):
        f(x, torch.tensor([1, 9], device=MUSA))
    host = torch.zeros(1 << 20)
    assert torch.musa.memory_allocated() == allocated
    assert host.numpy().sum() == 0
