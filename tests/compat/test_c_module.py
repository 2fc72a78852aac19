"""torch_musa._MUSAC: what clients reach into, each against the public form or CUDA's documented behaviour."""

import pytest
import torch
from torch_musa import _MUSAC, core


def test_names_of_the_module_serve_the_public_ones():
    with torch.musa.device(1):
        assert _MUSAC._musa_getDevice() == torch.musa.current_device() == 1
        assert _MUSAC._musa_getCurrentRawStream(1) == torch.musa.current_stream().musa_stream
    side = torch.musa.Stream()
    with torch.musa.stream(side):
        assert _MUSAC._musa_getCurrentStream(0)[:2] == (side.stream_id, 0)
    before = torch.musa.current_stream()
    _MUSAC._musa_setStream(side.stream_id, 0, 20)
    assert torch.musa.current_stream() == side
    torch.musa.set_stream(before)
    assert "mp_31" in _MUSAC._musa_getArchFlags().split()
    assert _MUSAC._empty_strided_musa((2, 3), (1, 2), torch.float16).stride() == (1, 2)
    assert core._utils._get_musa_device_index("musa:1") == 1


def test_a_tensor_over_a_storage():
    storage = torch.arange(12.0, device="musa").untyped_storage()
    metadata = {"size": (2, 3), "stride": (1, 2), "storage_offset": 4, "dtype": torch.float32, "device": "musa:0"}
    made = _MUSAC._construct_MUSA_Tensor_From_Storage_And_Metadata(metadata, storage)
    assert made.tolist() == [[4.0, 6.0, 8.0], [5.0, 7.0, 9.0]]
    assert made.untyped_storage().data_ptr() == storage.data_ptr()


def test_memory_given_back_behind_a_tensor():
    torch.musa.empty_cache()
    tensor = torch.ones(1 << 20, device="musa")
    allocated = torch.musa.memory_allocated()
    storage = tensor.untyped_storage()
    assert _MUSAC._has_Standard_Deleter(storage._cdata)
    _MUSAC._free_And_Remove_DeleterFn(storage._cdata)
    assert torch.musa.memory_allocated() == allocated - (4 << 20)
    assert not _MUSAC._has_Standard_Deleter(storage._cdata)
    with pytest.raises(RuntimeError, match="a storage on musa"):
        _MUSAC._has_Standard_Deleter(torch.ones(1).untyped_storage()._cdata)


def test_access_to_a_storage_is_forbidden_with_a_reason():
    tensor = torch.ones(3, device="musa")
    _MUSAC._set_storage_access_error_msg(tensor, "overwritten by the next replay")
    with pytest.raises(RuntimeError, match="overwritten by the next replay"):
        tensor.data_ptr()


def test_addresses_are_compared_at_the_indices_given():
    tensors = [torch.ones(1, device="musa") for _ in range(3)]
    addresses = [tensor.data_ptr() for tensor in tensors]
    addresses[1] += 512
    assert _MUSAC._tensors_data_ptrs_at_indices_equal(tensors, addresses, [0, 2])
    assert not _MUSAC._tensors_data_ptrs_at_indices_equal(tensors, addresses, [0, 1])
    with pytest.raises(IndexError):
        _MUSAC._tensors_data_ptrs_at_indices_equal(tensors, addresses, [3])


def test_a_pool_goes_back_to_an_earlier_state():
    pool = torch.musa.MemPool()
    with torch.musa.use_mem_pool(pool):
        kept = torch.ones(1 << 18, device="musa")
        state = _MUSAC._musa_getCheckpointState(0, pool.id)
        stale = torch.ones(1 << 18, device="musa")
    assert state.addresses == {kept.data_ptr()}
    assert not _MUSAC._musa_checkPoolLiveAllocations(0, pool.id, {kept.data_ptr()})
    _MUSAC._musa_setCheckpointPoolState(0, state, [stale.untyped_storage()._cdata], [])
    assert _MUSAC._musa_checkPoolLiveAllocations(0, pool.id, {kept.data_ptr()})
    address = kept.data_ptr()
    del kept
    again = torch._C._construct_storage_from_data_pointer(address, torch.device("musa:0"), 1 << 20)
    _MUSAC._musa_setCheckpointPoolState(0, state, [], [again._cdata])
    assert _MUSAC._musa_checkPoolLiveAllocations(0, pool.id, {address})
    with torch.musa.use_mem_pool(pool):
        other = torch.ones(1 << 18, device="musa")
    assert other.data_ptr() != address
    with pytest.raises(RuntimeError, match="in use that were not when its state was taken"):
        _MUSAC._musa_setCheckpointPoolState(0, state, [], [])
    del again
    assert _MUSAC._musa_checkPoolLiveAllocations(0, pool.id, {other.data_ptr()})


def test_functions_of_an_allocator_that_are_never_called_are_refused():
    allocator = _MUSAC._MUSAPluggableAllocator.__new__(_MUSAC._MUSAPluggableAllocator)
    with pytest.raises(NotImplementedError, match="record_stream function is never called"):
        allocator.set_record_stream_fn(1)


def test_the_packages_are_one():
    import torch_musa

    assert torch.musa.core is core is torch_musa.core
    assert torch.musa.optim is torch_musa.optim
    torch_musa._apply_patches()
    torch_musa._autoload()
    assert core._lazy_init._initialized == torch.musa.is_initialized()


def test_a_class_that_a_build_lacks():
    with pytest.raises(RuntimeError, match="Thing isn't available"):
        core._utils._dummy_type("Thing")()


def test_methods_as_functions():
    from torch_musa.core import module_attrs, tensor_attrs

    tensor = tensor_attrs._to(torch.ones(2), 1)
    assert tensor.device == torch.device("musa", 1)
    assert tensor_attrs._is_musa(tensor_attrs._musa(torch.ones(2)))
    assert tensor_attrs._is_pinned(tensor_attrs._pin_memory(torch.ones(2)))
    assert module_attrs._musa(torch.nn.Linear(1, 1), 1).weight.device.index == 1
    assert core.storage._musa(torch.ones(2).untyped_storage()).device.type == "musa"


def test_shapes_of_the_fused_norm():
    from torch_musa.core.ops.register_fake_impl import fused_rmsnorm_backward, fused_rmsnorm_forward

    x, weight = torch.ones(2, 3, 4, device="meta", dtype=torch.bfloat16), torch.ones(4, device="meta")
    out, scale = fused_rmsnorm_forward(x, [4], 1e-6, weight)
    assert (out.shape, scale.shape, scale.dtype) == (x.shape, (2, 3, 1), torch.float32)
    assert [g.shape for g in fused_rmsnorm_backward(out, scale, x, [4], 1e-6, weight)] == [x.shape, weight.shape]
