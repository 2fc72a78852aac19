"""What is added to torch itself: it serves musa, and changes nothing for the cpu and for CUDA code."""

import io
import warnings

import pytest
import torch


def test_an_int_is_a_card():
    assert torch.ones(1).to(1).device == torch.device("musa", 1)
    assert torch.ones(1).to(device=2).device == torch.device("musa", 2)
    assert torch.ones(1, device=3).device == torch.device("musa", 3)
    assert torch.ones(1).musa(1).device.index == 1
    assert torch.nn.Linear(1, 1).to(1).weight.device.index == 1
    assert torch.ones(1).orig_to("musa:1").device.index == 1


def test_pinning_is_for_the_accelerator():
    pinned = torch.ones(4).pin_memory()
    assert pinned.is_pinned()
    assert not torch.ones(4).is_pinned()
    assert torch.ones(4).orig_pin_memory().orig_is_pinned()


def test_storages():
    storage = torch.ones(4, device="musa:1").untyped_storage()
    assert storage.is_musa
    assert not storage.is_cuda
    assert storage.edit_device("musa:1") is storage
    assert storage.edit_device(1) is storage
    with pytest.raises(RuntimeError, match=r"copy it with storage.to\(device='musa:0'\)"):
        storage.edit_device("musa:0")
    with pytest.raises(RuntimeError, match="host and card share none"):
        torch.ones(4).untyped_storage().edit_device("musa")
    assert storage.cpu().musa(2).device == torch.device("musa", 2)


def test_autocast_without_a_device_type_means_musa():
    assert not torch.is_autocast_enabled()
    with torch.autocast("musa", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled()
        assert torch.is_autocast_enabled("musa")
        assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu"):
        assert not torch.is_autocast_enabled()
        assert torch.is_autocast_enabled("cpu")
    torch.set_autocast_enabled(True)
    try:
        assert torch.is_autocast_enabled("musa")
        assert not torch.is_autocast_enabled("cpu")
    finally:
        torch.set_autocast_enabled("musa", False)
    assert not torch.is_autocast_enabled()


def test_fork_rng_covers_cpu_and_cards():
    torch.manual_seed(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.random.fork_rng():
            first = torch.rand(2), torch.rand(2, device="musa:0"), torch.rand(2, device="musa:1")
        with torch.musa.random.fork_rng():
            second = torch.rand(2), torch.rand(2, device="musa:0"), torch.rand(2, device="musa:1")
    for x, y in zip(first, second, strict=True):
        assert torch.equal(x, y)
    with torch.random.fork_rng(devices=[1]):
        torch.rand(2), torch.rand(2, device="musa:0"), torch.rand(2, device="musa:1")
    after = torch.rand(2), torch.rand(2, device="musa:0"), torch.rand(2, device="musa:1")
    assert torch.equal(after[0], first[0])
    assert not torch.equal(after[1].cpu(), first[1].cpu())
    assert torch.equal(after[2], first[2])
    with torch.random.fork_rng(devices=[], device_type="cuda"):
        torch.rand(2, device="musa")


def test_offset_of_the_random_state_is_read_and_set():
    torch.musa.manual_seed(9)
    assert torch.musa._get_rng_state_offset() == 0
    first = torch.rand(3, device="musa")
    offset = torch.musa._get_rng_state_offset()
    assert offset > 0
    second = torch.rand(3, device="musa")
    torch.musa._set_rng_state_offset(offset)
    assert torch.equal(torch.rand(3, device="musa"), second)
    torch.musa._set_rng_state_offset(0)
    assert torch.equal(torch.rand(3, device="musa"), first)


def test_a_file_saved_on_cuda_is_refused_with_what_to_do():
    file = io.BytesIO()
    torch.save(torch.arange(3.0), file)
    data = file.getvalue()

    def on_cuda(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage:
        return torch.serialization.default_restore_location(storage, "cuda:0")

    with pytest.raises(RuntimeError, match='map_location="musa"'):
        torch.load(io.BytesIO(data), map_location=on_cuda)
    with pytest.raises(RuntimeError, match=r"'cuda:1'.*torch.cuda.is_available\(\) is False"):
        torch.load(io.BytesIO(data), map_location="cuda:1")
    assert torch.load(io.BytesIO(data), map_location="musa:1").device.index == 1
    assert torch.load(io.BytesIO(data)).device.type == "cpu"


def test_locations_of_musa():
    from torch_musa_sim.musa import serialization

    storage = torch.ones(2, device="musa:1").untyped_storage()
    assert serialization._musa_tag(storage) == "musa:1"
    assert serialization._musa_tag(storage.cpu()) is None
    assert serialization._musa_deserialize(storage.cpu(), "musa:2").device.index == 2
    assert serialization._musa_deserialize(storage, "cpu") is None
    assert serialization._validate_musa_device("musa") == torch.musa.current_device()
    with pytest.raises(RuntimeError, match=r"the visible cards are 0 \.\. 7"):
        serialization._validate_musa_device("musa:8")


def test_events_of_both_classes_are_compared():
    events = [
        torch.Event("musa", enable_timing=True),
        torch.musa.Event(enable_timing=True),
        torch.Event("musa", enable_timing=True),
    ]
    for event in events:
        event.record()
        torch.musa._sleep(100_000)
    torch.musa.synchronize()
    a, b, c = events
    assert a.elapsed_time(c) == pytest.approx(a.elapsed_time(b) + b.elapsed_time(c))
    assert a.elapsed_time(b) > 0
    with pytest.raises(RuntimeError, match="Both events must be recorded"):
        a.elapsed_time(torch.Event("musa", enable_timing=True))


def test_events_stay_in_their_process():
    for call in (
        lambda: torch.musa.Event(interprocess=True),
        lambda: torch.musa.Event().ipc_handle(),
        lambda: torch.musa.Event.from_ipc_handle("musa", b""),
    ):
        with pytest.raises(NotImplementedError, match="can't be shared between processes"):
            call()


def test_handles_of_events():
    event = torch.musa.Event()
    event.record()
    assert event.musa_event == event.cuda_event == event._as_parameter_.value != 0


def test_setting_it_all_again_changes_nothing():
    before = torch.Tensor.to, torch.random.fork_rng, torch._C._scatter, torch.Event.elapsed_time
    torch.musa.set_attributes()
    torch.musa.register_musa_hook()
    assert before == (torch.Tensor.to, torch.random.fork_rng, torch._C._scatter, torch.Event.elapsed_time)


def test_generic_torch_api_knows_the_module():
    assert torch.get_device_module("musa") is torch.musa
    assert torch.get_device_module(torch.device("musa:1")) is torch.musa
    assert torch.get_device_module() is torch.musa
    assert torch.accelerator.current_accelerator() == torch.device("musa")
    torch.accelerator.set_device_index(2)
    try:
        assert torch.musa.current_device() == 2
        assert torch.accelerator.current_stream() == torch.musa.current_stream()
        torch.accelerator.synchronize()
    finally:
        torch.accelerator.set_device_index(0)
    with torch.accelerator.device_index(1):
        assert torch.musa.current_device() == 1


def test_sleeping_a_negative_time_is_an_empty_kernel():
    start, end = torch.musa.Event(enable_timing=True), torch.musa.Event(enable_timing=True)
    start.record()
    torch.musa._sleep(-1)
    end.record()
    torch.musa.synchronize()
    assert 0 < start.elapsed_time(end) < 0.1


def test_overwriting_cuda_s_functions_is_asked_for():
    before = torch.cuda._lazy_init, torch.cuda._lazy_call
    assert torch.musa._lazy_init not in before
    torch.musa.overwrite_cuda_api()
    try:
        assert torch.cuda._lazy_init is torch.musa._lazy_init
        torch.cuda._lazy_init()
    finally:
        torch.cuda._lazy_init, torch.cuda._lazy_call = before
