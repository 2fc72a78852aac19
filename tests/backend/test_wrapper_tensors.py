"""A wrapper tensor that reaches a kernel without being unwrapped gets a plain answer instead of a crash."""

import pytest
import torch


class Wrapper(torch.Tensor):
    """Holds a musa tensor inside and has no memory of its own."""

    @staticmethod
    def __new__(cls, inner):
        wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype, device=inner.device)
        wrapper.inner = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*[arg.inner if isinstance(arg, Wrapper) else arg for arg in args], **(kwargs or {}))


OPERATORS = {
    "add": lambda w: torch.add(w, 1),
    "mm": lambda w: torch.mm(w, w),
    "sum": lambda w: torch.sum(w),
    "nonzero": lambda w: torch.nonzero(w),
    "to cpu": lambda w: w.cpu(),
    "convolution": lambda w: torch.nn.functional.conv1d(w[None], w[None]),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_wrapper_that_was_not_unwrapped_is_named(name):
    wrapper = Wrapper(torch.ones(3, 3, device="musa"))
    with torch._C._DisableTorchDispatch(), pytest.raises(NotImplementedError, match="wrapper tensor"):
        OPERATORS[name](wrapper)


def test_an_unwrapping_subclass_works():
    assert torch.equal((Wrapper(torch.ones(3, device="musa")) + 1).cpu(), torch.full((3,), 2.0))


def test_a_tensor_whose_storage_was_freed_is_refused_and_usable_again():
    tensor = torch.ones(4, device="musa")
    tensor.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="storage was resized to 0 bytes"):
        tensor + 1
    tensor.untyped_storage().resize_(16)
    assert torch.equal(tensor.fill_(2).cpu(), torch.full((4,), 2.0))
