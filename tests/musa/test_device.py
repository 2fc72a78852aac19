"""torch.musa: counting, choosing and describing cards, with CUDA's argument conventions."""

import threading

import pytest
import torch


def test_cards_are_counted_and_described():
    assert torch.musa.is_available()
    assert torch.musa.device_count() == torch.accelerator.device_count() > 1
    properties = torch.musa.get_device_properties("musa:1")
    assert properties.name == torch.musa.get_device_name(1)
    assert (properties.major, properties.minor) == torch.musa.get_device_capability()
    assert properties.total_memory == torch.musa.mem_get_info(1)[1]
    assert properties.multi_processor_count > 0
    assert properties.name in repr(properties)


def test_current_card_belongs_to_the_thread():
    seen = []
    with torch.musa.device(1):
        thread = threading.Thread(target=lambda: seen.append(torch.musa.current_device()))
        thread.start()
        thread.join()
        assert torch.musa.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.ones(1, device="musa").device.index == 1
    assert seen == [0]
    assert torch.musa.current_device() == 0


def test_device_contexts_nest_and_survive_errors():
    with pytest.raises(KeyError), torch.musa.device("musa:2"), torch.musa.device(torch.device("musa", 3)):
        raise KeyError
    assert torch.musa.current_device() == 0
    with torch.musa.device(2), torch.musa.device(None), torch.musa.device(-1):
        assert torch.musa.current_device() == 2
    with torch.musa.device_of(torch.ones(1, device="musa:1")), torch.musa.device_of(torch.ones(1)):
        assert torch.musa.current_device() == 1


def test_set_device_takes_what_cuda_takes():
    try:
        for chosen in (3, "musa:3", torch.device("musa:3")):
            torch.musa.set_device(0)
            torch.musa.set_device(chosen)
            torch.musa.set_device(-1)
            assert torch.musa.current_device() == 3
    finally:
        torch.musa.set_device(0)


@pytest.mark.parametrize(
    "call",
    [
        torch.musa.set_device,
        torch.musa.device,
        torch.musa.get_device_properties,
        torch.musa.memory_allocated,
        torch.musa.current_stream,
        torch.musa.get_rng_state,
        torch.musa.Stream,
        torch.musa.synchronize,
    ],
)
def test_wrong_devices_are_refused(call):
    count = torch.musa.device_count()
    with pytest.raises(RuntimeError, match=f"musa:{count} doesn't exist, the visible cards are 0 .. {count - 1}"):
        call(count)
    with pytest.raises(ValueError, match="Expected a musa device, but got: cpu"):
        call("cpu")
    for nonsense in (1.5, True, object()):
        with pytest.raises(TypeError, match="expected a musa device or its index"):
            call(nonsense)


@pytest.mark.parametrize("index", [8, 127, 200])
def test_a_tensor_on_a_card_that_is_not_there_is_refused(index):
    with pytest.raises(RuntimeError, match="out of range"):
        torch.ones(1, device=f"musa:{index}")


def test_peers_are_the_other_cards():
    assert torch.musa.can_device_access_peer(0, 1)
    assert not torch.musa.can_device_access_peer(1, 1)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_legacy_types():
    tensor = torch.ones(2, device="musa")
    assert tensor.type() == "torch.musa.FloatTensor"
    assert isinstance(tensor, torch.musa.FloatTensor)
    assert not isinstance(tensor.cpu(), torch.musa.FloatTensor)
    assert tensor.type(torch.musa.HalfTensor).dtype == tensor.type("torch.musa.HalfTensor").dtype == torch.float16
    assert torch.musa.LongTensor([1, 2]).tolist() == [1, 2]
    assert torch.musa.IntTensor(2, 3).shape == (2, 3)
    assert torch.musa.FloatTensor(tensor).data_ptr() == tensor.data_ptr()
    with pytest.raises(TypeError, match="tensor of its own type"):
        torch.musa.IntTensor(tensor)
    storage = torch.storage.TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=torch.float32, _internal=True)
    assert storage._get_legacy_storage_class() is torch.musa.FloatStorage


def test_generated_methods():
    module = torch.nn.Linear(2, 2).musa(1)
    assert module.weight.is_musa
    assert module.weight.device.index == 1
    assert torch.ones(1).untyped_storage().musa().device.type == "musa"
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    assert packed.musa().is_musa


def test_guards_by_index_change_the_card_and_put_it_back():
    with torch.musa._DeviceGuard(2):
        assert torch.musa.current_device() == 2
        with torch.musa._DeviceGuard(-1):
            assert torch.musa.current_device() == 2
    assert torch.musa.current_device() == 0
    assert torch.musa._exchange_device(1) == 0
    assert torch.musa._maybe_exchange_device(-1) == 1
    assert torch.musa._exchange_device(0) == 1


def test_devices_are_read_as_cuda_reads_them():
    assert torch.musa._get_device_index("musa:2") == torch.musa._get_device_index(torch.device("musa", 2)) == 2
    assert torch.musa._get_device_index(None, optional=True) == torch.musa.current_device()
    assert torch.musa._get_device_index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError, match="specified index or an integer"):
        torch.musa._get_device_index("musa")
    assert torch.musa._get_device(1) == torch.device("musa", 1)
    assert torch.musa._get_device("musa:3") == torch.device("musa", 3)
    assert torch.musa._get_device_properties(1).uuid == torch.musa.get_device_properties(1).uuid
