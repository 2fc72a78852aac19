"""set_sync_debug_mode: every operation that makes the host wait, and no other."""

import warnings

import pytest
import torch

TEXT = "called a synchronizing MUSA operation"


@pytest.fixture(autouse=True)
def _mode_is_put_back():
    yield
    torch.musa.set_sync_debug_mode(0)


def musa(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device="musa")


WAITING = {
    "item": lambda x: x[0].item(),
    "bool": lambda x: bool(x[0] > 0),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "masked_select": lambda x: torch.masked_select(x, x > 1),
    "unique": lambda x: torch.unique(x),
    "to host": lambda x: x.cpu(),
    "from host": lambda x: torch.ones(2).to("musa"),
    "new tensor": lambda x: torch.tensor([1.0], device="musa"),
    "stream": lambda x: torch.musa.current_stream().synchronize(),
    "equal": lambda x: torch.equal(x, x),
}
SILENT = {
    "kernel": lambda x: (x @ x, x.relu_(), x.sum()),
    "factory": lambda x: torch.zeros(3, device="musa"),
    "pinned to card": lambda x: x.copy_(torch.ones(3).pin_memory(), non_blocking=True),
    "card to pinned": lambda x: torch.empty(3, pin_memory=True).copy_(x, non_blocking=True),
    "card to card": lambda x: x.to("musa:1"),
    "device": lambda x: torch.musa.synchronize(),
    "event": lambda x: torch.musa.current_stream().record_event().synchronize(),
    "query": lambda x: torch.musa.current_stream().query(),
    "view": lambda x: x.view(3, 1).t(),
}


@pytest.mark.parametrize("name", WAITING)
def test_an_operation_that_waits_is_reported(name):
    x = musa(1, 2, 3)
    torch.musa.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match=TEXT):
        WAITING[name](x)
    torch.musa.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match=TEXT):
        WAITING[name](x)
    torch.musa.set_sync_debug_mode("default")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WAITING[name](x)


@pytest.mark.parametrize("name", SILENT)
def test_an_operation_that_does_not_wait_is_silent(name):
    x = musa(1, 2, 3)
    torch.musa.set_sync_debug_mode("error")
    SILENT[name](x)


def test_mode_is_read_back_as_a_number():
    for name, number in (("warn", 1), ("error", 2), ("default", 0)):
        torch.musa.set_sync_debug_mode(name)
        assert torch.musa.get_sync_debug_mode() == number
        torch.musa.set_sync_debug_mode(number)
        assert torch.musa.get_sync_debug_mode() == number


@pytest.mark.parametrize("mode", ["loud", 3, -1])
def test_other_modes_are_refused(mode):
    with pytest.raises(RuntimeError, match="invalid value of debug_mode, expected one of"):
        torch.musa.set_sync_debug_mode(mode)


def test_a_refused_copy_has_not_happened():
    target = musa(1, 2, 3)
    torch.musa.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match=TEXT):
        target.copy_(torch.zeros(3))
    torch.musa.set_sync_debug_mode("default")
    assert target.tolist() == [1, 2, 3]
