"""What Dynamo knows of the device."""

import subprocess
import sys

import torch
from torch._dynamo.device_interface import get_interface_for_device, get_registered_device_interfaces


def test_interface_is_registered_for_the_device_and_each_card():
    names = {name for name, _ in get_registered_device_interfaces()}
    assert {"musa", *(f"musa:{i}" for i in range(torch.musa.device_count()))} <= names
    interface = get_interface_for_device("musa")
    assert interface is get_interface_for_device(torch.device("musa:1")) is get_interface_for_device("musa:1")
    assert interface.is_available()
    assert interface.device_count() == torch.musa.device_count()
    major, minor = torch.musa.get_device_capability(0)
    assert interface.get_compute_capability("musa:0") == interface.get_compute_capability() == 10 * major + minor
    assert interface.is_dtype_supported(torch.bfloat16) == torch.musa.is_bf16_supported()
    assert interface.get_raw_stream(0) == torch.musa.current_stream(0).musa_stream
    assert interface.get_device_properties(1).total_memory == torch.musa.get_device_properties(1).total_memory
    assert not interface.is_triton_capable()
    assert issubclass(interface.Stream, torch.Stream)
    assert issubclass(interface.Event, torch.Event)


def test_worker_answers_for_the_card_it_was_given():
    interface = get_interface_for_device("musa")
    from torch._dynamo.device_interface import caching_worker_current_devices

    assert interface.Worker.current_device() == torch.musa.current_device()
    try:
        interface.Worker.set_device(1)
        assert interface.Worker.current_device() == 1
        assert torch.musa.current_device() == 0
        assert interface.Worker.get_device_properties().name == torch.musa.get_device_name(1)
    finally:
        caching_worker_current_devices.pop("musa", None)


def test_exchange_device_restores():
    interface = get_interface_for_device("musa")
    before = interface.exchange_device(1)
    assert torch.musa.current_device() == 1
    assert interface.maybe_exchange_device(before) == 1
    assert torch.musa.current_device() == before


def test_import_torch_loads_neither_dynamo_nor_inductor():
    code = (
        "import sys, torch; assert torch.musa.device_count(); "
        "print([m for m in sys.modules if m in ('torch._dynamo', 'torch._inductor.compile_fx', 'sympy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
