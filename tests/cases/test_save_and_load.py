"""torch.save and torch.load keep the device, and map_location moves it, in every form it can have."""

import copy
import io
import os
import pickle
import subprocess
import sys

import pytest
import torch

VALUES = torch.arange(10.0).reshape(2, 5)
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]


def saved(value, **options) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("card", [0, 1])
def test_the_card_comes_back(card, dtype, zipped):
    if dtype == torch.float8_e4m3fn and not zipped:
        pytest.skip("torch's old file format has no float8, on any device")
    x = VALUES.to(f"musa:{card}", dtype)
    loaded = torch.load(saved(x, _use_new_zipfile_serialization=zipped))
    assert loaded.device == x.device
    assert loaded.dtype == dtype
    assert torch.equal(loaded.cpu().to(torch.complex64), VALUES.to(dtype).to(torch.complex64))


TO_CPU = ["cpu", torch.device("cpu"), {"musa:0": "cpu"}, lambda storage, location: storage]
TO_MUSA = ["musa", "musa:0", torch.device("musa"), torch.device("musa", 0), {"cpu": "musa:0"},
           lambda storage, location: storage.musa(0)]  # fmt: skip


@pytest.mark.parametrize("where", TO_CPU, ids=["str", "device", "dict", "callable"])
def test_from_a_card_to_the_cpu(where):
    loaded = torch.load(saved(VALUES.to("musa")), map_location=where)
    assert loaded.device.type == "cpu"
    assert torch.equal(loaded, VALUES)


@pytest.mark.parametrize("where", TO_MUSA, ids=["str", "index", "device", "device_index", "dict", "callable"])
def test_from_the_cpu_to_a_card(where):
    loaded = torch.load(saved(VALUES), map_location=where, weights_only=not callable(where))
    assert loaded.device == torch.device("musa:0")
    assert torch.equal(loaded.cpu(), VALUES)


def test_between_cards():
    loaded = torch.load(saved(VALUES.to("musa:0")), map_location={"musa:0": "musa:1"})
    assert loaded.device == torch.device("musa:1")


def test_missing_card_is_refused():
    with pytest.raises(RuntimeError, match=r"(?i)musa"):
        torch.load(saved(VALUES.to("musa")), map_location=f"musa:{torch.musa.device_count()}")


def test_shared_storages_stay_shared():
    base = torch.zeros(6, device="musa")
    whole, part = torch.load(saved([base, base[2:4]]))
    part.fill_(1)
    assert whole.tolist() == [0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("where", ["musa", None])
def test_memory_mapped(tmp_path, where):
    torch.save(VALUES.to("musa") if where is None else VALUES, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt", map_location=where, mmap=True)
    assert loaded.device == torch.device("musa:0")
    assert torch.equal(loaded.cpu(), VALUES)


def test_modules_and_optimizers():
    model = torch.nn.Linear(4, 3).to("musa")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4, device="musa")).sum().backward()
    optimizer.step()
    state = torch.load(saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
    again = torch.nn.Linear(4, 3)
    again.load_state_dict(state["model"])
    assert again.weight.device.type == "cpu"
    assert torch.equal(again.weight, model.weight.cpu())
    other = torch.optim.AdamW(again.to("musa").parameters())
    other.load_state_dict(state["optimizer"])
    assert all(t.is_musa for s in other.state.values() for t in s.values() if t.dim())


def test_parameters_buffers_and_copies():
    parameter = torch.nn.Parameter(VALUES.to("musa"))
    for again in (torch.load(saved(parameter), weights_only=False), pickle.loads(pickle.dumps(parameter)),
                  copy.deepcopy(parameter)):  # fmt: skip
        assert isinstance(again, torch.nn.Parameter)
        assert again.is_musa
        assert torch.equal(again.cpu(), VALUES)


def test_a_process_without_the_device_reads_the_file(tmp_path):
    torch.save(VALUES.to("musa"), tmp_path / "x.pt")
    read = f"import torch; print(torch.load({str(tmp_path / 'x.pt')!r}, map_location='cpu').sum().item())"
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "45.0", done.stderr
