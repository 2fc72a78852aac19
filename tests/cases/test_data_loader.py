"""DataLoader pins its batches for musa by itself, in every way it runs, and asynchronous copies arrive whole."""

import threading
import warnings

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

X, Y = torch.arange(64.0).reshape(32, 2), torch.arange(32)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_batches_are_pinned_and_arrive(workers, persistent, named):
    options = {"pin_memory_device": "musa"} if named else {}
    if workers:
        options |= {"persistent_workers": persistent, "multiprocessing_context": "fork"}
    seen = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = DataLoader(TensorDataset(X, Y), batch_size=5, pin_memory=True, num_workers=workers, **options)
        for data, label in loader:
            assert data.is_pinned()
            assert label.is_pinned()
            moved = data.to("musa", non_blocking=True), label.to("musa", non_blocking=True)
            torch.musa.synchronize()
            seen.append([part.cpu() for part in moved])
    assert torch.equal(torch.cat([data for data, _ in seen]), X)
    assert torch.equal(torch.cat([label for _, label in seen]), Y)
    # torch itself deprecates naming the device; without a name nothing is said.
    assert named or not [w for w in caught if "pin" in str(w.message).lower()]


def test_nested_batches_are_pinned():
    data = [{"a": torch.ones(2), "b": [torch.ones(3), (torch.ones(1),)]} for _ in range(4)]
    batch = next(iter(DataLoader(data, batch_size=2, pin_memory=True)))
    assert batch["a"].is_pinned()
    assert batch["b"][0].is_pinned()
    assert batch["b"][1][0].is_pinned()


def test_pinned_tensors():
    pinned = torch.randn(4).pin_memory()
    assert pinned.is_pinned()
    assert pinned.device.type == "cpu"
    assert pinned[1:].is_pinned()
    assert pinned.pin_memory() is pinned
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert torch.zeros(3, dtype=torch.bfloat16, pin_memory=True).is_pinned()
    assert not pinned.clone().is_pinned()
    assert not torch.randn(4).is_pinned()
    assert pinned.untyped_storage().is_pinned()


def test_card_memory_can_not_be_pinned():
    with pytest.raises(RuntimeError, match="pin"):
        torch.randn(2, device="musa").pin_memory()


def test_loader_threads_see_the_callers_card():
    """What a loader's pin thread asks of the device module works from any thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append((torch.musa.current_device(), torch.ones(1).pin_memory())))
    thread.start()
    thread.join()
    assert found[0][0] == 0
    assert found[0][1].is_pinned()


def test_stateful_loader():
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    loader = stateful.StatefulDataLoader(TensorDataset(X), batch_size=4, pin_memory=True, pin_memory_device="musa")
    assert next(iter(loader))[0].is_pinned()
