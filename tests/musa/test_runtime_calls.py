"""torch.musa.musart(): the runtime's calls from Python, with torch.cuda.cudart()'s conventions."""

import ctypes

import pytest
import torch


def test_registered_memory_is_pinned():
    tensor = torch.zeros(1 << 16)
    runtime = torch.musa.musart()
    assert not tensor.is_pinned()
    torch.musa.check_error(runtime.musaHostRegister(tensor.data_ptr(), tensor.nbytes, 0))
    assert tensor.is_pinned()
    assert runtime.musaHostRegister(tensor.data_ptr(), tensor.nbytes, 0) != runtime.musaError.success
    torch.musa.check_error(runtime.musaHostUnregister(tensor.data_ptr()))
    assert not tensor.is_pinned()


def test_errors_carry_the_runtime_s_sentence():
    runtime = torch.musa.musart()
    status = runtime.musaHostUnregister(8)
    with pytest.raises(torch.musa.MusaError, match=r"registered memory region \(713\)"):
        torch.musa.check_error(status)
    with pytest.raises(RuntimeError, match=r"^out of memory \(2\)$"):
        torch.musa.check_error(2)
    assert torch.musa.check_error(runtime.musaError.success) is None
    assert torch.musa.check_error(0) is None
    assert runtime.musaGetErrorString(runtime.musaError.noDevice) == runtime.musaGetErrorString(100)


def test_memory_info_is_mem_get_info():
    held = torch.empty(1 << 20, device="musa:1")
    assert torch.musa.musart().musaMemGetInfo(1) == torch.musa.mem_get_info(1)
    del held
    with pytest.raises(RuntimeError, match="out of range"):
        torch.musa.musart().musaMemGetInfo(99)


def make_stream() -> int:
    handle = ctypes.c_void_p()
    torch.musa.check_error(torch.musa.musart().musaStreamCreate(ctypes.addressof(handle)))
    assert handle.value is not None
    return handle.value


def test_a_stream_of_the_program_s_own_takes_work():
    handle = make_stream()
    stream = torch.musa.ExternalStream(handle)
    assert stream.musa_stream == stream.cuda_stream == handle
    assert isinstance(stream, torch.musa.Stream)
    assert stream._as_parameter_.value == handle
    assert torch.musa.get_stream_from_external(handle) == stream
    other = torch.musa.current_stream()
    with torch.musa.stream(stream):
        assert torch.musa.current_stream() == stream
        assert (torch.ones(3, device="musa") + 1).tolist() == [2, 2, 2]
        torch.musa._sleep(1_000_000)
    assert torch.musa.current_stream() == other
    assert not stream.query()
    other.wait_stream(stream)
    stream.synchronize()
    assert stream.query()
    torch.musa.check_error(torch.musa.musart().musaStreamDestroy(handle))
    with pytest.raises(RuntimeError, match="live until musaStreamDestroy"):
        torch.musa.set_stream(stream)


def test_the_null_stream_is_the_default_stream():
    assert torch.musa.get_stream_from_external(0, 1) == torch.musa.default_stream(1)
    handle = torch.musa.default_stream(1).musa_stream
    assert torch.musa.ExternalStream(handle, device="musa:1") == torch.musa.default_stream(1)


def test_what_is_no_stream_of_the_card_is_refused():
    with torch.musa.device(1):
        handle = make_stream()
    with pytest.raises(RuntimeError, match="No stream of musa:0"):
        torch.musa.ExternalStream(handle, 0)
    with pytest.raises(RuntimeError, match="No stream of musa:0"):
        torch.musa.ExternalStream(12345678)
    assert torch.musa.ExternalStream(handle, 1).device.index == 1
    torch.musa.musart().musaStreamDestroy(handle)


def test_names_of_cuda_reach_the_same():
    assert torch.musa.cudart() is torch.musa.musart()
    assert torch.musa.CudaError is torch.musa.MusaError
    assert torch.musa.AcceleratorError is torch.AcceleratorError
