"""torch.backends.musa and torch.backends.mudnn: TF32 changes the modelled time of float32 products, never a value."""

import contextlib
import importlib

import pytest
import torch
import torch.nn.functional as F
from torch.backends import __allow_nonbracketed_mutation as allow_mutation

BIG = 512  # bound by arithmetic on every card


@pytest.fixture(autouse=True)
def _flags_are_put_back():
    # torch's own test tools forbid changes of global flags in the whole process.
    with allow_mutation():
        before = torch.get_float32_matmul_precision()
        conv, enabled = torch.backends.mudnn.allow_tf32, torch.backends.mudnn.enabled
        yield
        torch.backends.musa.matmul.fp32_precision = "ieee"
        torch.set_float32_matmul_precision(before)
        torch.backends.mudnn.allow_tf32, torch.backends.mudnn.enabled = conv, enabled


def virtual_ms(work) -> float:
    """Modelled device time of `work`, without the host's part."""
    start, end = torch.musa.Event(enable_timing=True), torch.musa.Event(enable_timing=True)
    torch.musa._sleep(1_000_000)  # everything is issued before the card gets to it
    start.record()
    work()
    end.record()
    torch.musa.synchronize()
    return start.elapsed_time(end)


def tensors(*shape: int, dtype: torch.dtype = torch.float32, count: int = 2) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(*shape, generator=generator).to(dtype).musa() for _ in range(count)]


a, b = tensors(BIG, BIG)
bias = tensors(BIG, count=1)[0]
p, q = tensors(4, 256, 256)
PRODUCTS = {
    "mm": lambda: a @ b,
    "mm out": lambda: torch.mm(a, b, out=torch.empty_like(a)),
    "addmm": lambda: torch.addmm(bias, a, b),
    "linear": lambda: F.linear(a, b, bias),
    "bmm": lambda: p @ q,
    "baddbmm": lambda: torch.baddbmm(p, p, q),
    "einsum": lambda: torch.einsum("bij,bjk->bik", p, q),
}
(image,) = tensors(4, 64, 32, 32, count=1)
(kernel,) = tensors(64, 64, 3, 3, count=1)


def convolve() -> torch.Tensor:
    return F.conv2d(image, kernel)


@pytest.mark.parametrize("name", PRODUCTS)
def test_float32_products_take_tf32_s_time_when_allowed(name):
    product = PRODUCTS[name]
    assert not torch.backends.musa.matmul.allow_tf32
    exact, slow = product(), virtual_ms(product)
    torch.backends.musa.matmul.allow_tf32 = True
    fast = virtual_ms(product)
    assert fast < 0.8 * slow
    assert torch.equal(product(), exact)
    torch.backends.musa.matmul.allow_tf32 = False
    assert virtual_ms(product) == slow


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_keep_their_time(dtype):
    x, y = tensors(BIG, BIG, dtype=dtype)
    before = virtual_ms(lambda: x @ y)
    torch.backends.musa.matmul.allow_tf32 = True
    assert virtual_ms(lambda: x @ y) == before


def test_what_is_bound_by_memory_keeps_its_time():
    small = tensors(16, 16)
    works = [lambda: small[0] @ small[1], lambda: a @ bias, lambda: a + b, lambda: a.softmax(-1)]
    before = [virtual_ms(work) for work in works]
    torch.backends.musa.matmul.allow_tf32 = True
    assert [virtual_ms(work) for work in works] == before


def test_every_way_to_allow_it_counts():
    slow = virtual_ms(PRODUCTS["mm"])
    for precision in ("high", "medium"):
        torch.set_float32_matmul_precision(precision)
        assert torch.backends.musa.matmul.allow_tf32
        assert virtual_ms(PRODUCTS["mm"]) < slow
        torch.set_float32_matmul_precision("highest")
        assert virtual_ms(PRODUCTS["mm"]) == slow
    torch.backends.cuda.matmul.allow_tf32 = True  # a program written for CUDA
    assert torch.backends.musa.matmul.allow_tf32
    assert virtual_ms(PRODUCTS["mm"]) < slow
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.musa.matmul.fp32_precision = "tf32"
    assert virtual_ms(PRODUCTS["mm"]) < slow


def test_precision_never_reaches_the_values():
    reference = (a.cpu().double() @ b.cpu().double()).float()
    for precision in ("high", "medium"):
        torch.set_float32_matmul_precision(precision)
        torch.testing.assert_close((a @ b).cpu(), reference, rtol=1e-5, atol=1e-4)


def test_convolutions_follow_mudnn_s_flag():
    assert torch.backends.mudnn.allow_tf32  # CUDA's default for convolutions
    fast, exact = virtual_ms(convolve), convolve()
    with torch.backends.mudnn.flags(allow_tf32=False):
        slow = virtual_ms(convolve)
        assert torch.equal(convolve(), exact)
    assert fast < 0.8 * slow
    assert virtual_ms(convolve) == fast
    torch.backends.musa.matmul.allow_tf32 = True
    with torch.backends.mudnn.flags(allow_tf32=False):
        assert virtual_ms(convolve) == slow


def test_without_mudnn_a_convolution_is_a_matrix_product():
    slow = virtual_ms(PRODUCTS["mm"])
    with torch.backends.mudnn.flags(allow_tf32=False):
        exact = virtual_ms(convolve)
    torch.backends.mudnn.enabled = False
    assert virtual_ms(convolve) == exact
    torch.backends.musa.matmul.allow_tf32 = True
    assert virtual_ms(convolve) < exact
    assert virtual_ms(PRODUCTS["mm"]) < slow


def test_backward_of_a_convolution_follows_too():
    x, w = image.clone().requires_grad_(), kernel.clone().requires_grad_()

    def work() -> None:
        convolve_output = F.conv2d(x, w)
        torch.autograd.grad(convolve_output, (x, w), torch.ones_like(convolve_output))

    fast = virtual_ms(work)
    with torch.backends.mudnn.flags(allow_tf32=False):
        assert fast < 0.8 * virtual_ms(work)


def test_mudnn_s_functions():
    mudnn = torch.backends.mudnn
    assert importlib.import_module("torch.backends.mudnn") is mudnn
    assert isinstance(mudnn.version(), int)
    assert mudnn.is_available()
    assert mudnn.is_acceptable(image)
    assert not mudnn.is_acceptable(image.cpu())
    assert mudnn.set_flags(False) == {"allow_tf32": True}
    assert not mudnn.allow_tf32
    assert mudnn.set_flags(True, _benchmark=True) == {"allow_tf32": False, "benchmark": False}
    assert torch.backends.cudnn.benchmark
    with contextlib.suppress(KeyError), mudnn.flags(False, benchmark=False, deterministic=True):
        assert (mudnn.allow_tf32, mudnn.benchmark, mudnn.deterministic) == (False, False, True)
        raise KeyError
    assert (mudnn.allow_tf32, mudnn.benchmark, mudnn.deterministic) == (True, True, False)
    mudnn.benchmark = False


def test_musa_s_functions():
    musa = torch.backends.musa
    assert importlib.import_module("torch.backends.musa") is musa
    assert musa.is_built()
    query = torch.randn(1, 2, 8, 16, device="musa")
    params = musa.SDPAParams(query, query, query, None, 0.0, False, False)
    assert musa.is_flash_attention_available()
    assert musa.can_use_flash_attention(params)
    assert musa.can_use_efficient_attention(params)
    assert not musa.can_use_cudnn_attention(params)
    musa.enable_flash_sdp(False)
    try:
        assert not musa.flash_sdp_enabled()
        assert not musa.can_use_flash_attention(params)
    finally:
        musa.enable_flash_sdp(True)
    musa.matmul.allow_fp16_reduced_precision_reduction = False
    assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    musa.matmul.allow_fp16_reduced_precision_reduction = True
    with pytest.raises(AttributeError):
        musa.matmul.no_such_flag  # noqa: B018
