"""torch.ops.musa.kv_append, kv_copy and kv_gather: a cache of keys and values in pages."""

import random

import pytest
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
DEVICES = ["cpu", "musa"]
ops = torch.ops.musa


def randn(*size: int, dtype: torch.dtype) -> torch.Tensor:
    seed = random.randrange(2**31)
    print("seed", seed)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def empty_pages(pages: int, heads: int, size: int, dim: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.full((pages, heads, size, dim), float("nan"), dtype=dtype, device=device)


def number_at(pages: torch.Tensor, page: int, head: int, position: int, element: int, values: bool) -> torch.Tensor:
    """By the documented order, one number at a time."""
    block, token = divmod(position, 16)
    dim = pages.shape[3]
    numbers = pages[page, head].flatten()[block * 16 * dim :]
    if pages.itemsize != 2:
        return numbers[token * dim + element]
    if values:
        return numbers[(token // 2 * dim + element) * 2 + token % 2]
    return numbers[(element // 2 * 16 + token) * 2 + element % 2]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("dim", "value_dim"), [(2, 2), (34, 6), (64, 80)])
def test_numbers_lie_where_the_documentation_says(device: str, dtype: torch.dtype, dim: int, value_dim: int) -> None:
    slots = [*range(32, 64), 5, -1, 90, 7, *range(64, 80)]  # whole blocks, single tokens, one left out
    k = empty_pages(3, 2, 32, dim, dtype, device)
    v = empty_pages(3, 2, 32, value_dim, dtype, device)
    key, value = randn(len(slots), 2, dim, dtype=dtype), randn(len(slots), 2, value_dim, dtype=dtype)
    ops.kv_append(k, v, key.to(device), value.to(device), torch.tensor(slots, device=device))
    k, v = k.cpu(), v.cpu()
    for rows, pages, values in ((key, k, False), (value, v, True)):
        for i in (0, 1, 17, 31, 32, 34, 35, 36, 51):
            page, position = divmod(slots[i], 32)
            for head in range(2):
                for element in range(rows.shape[2]):
                    assert number_at(pages, page, head, position, element, values) == rows[i, head, element]
        written = sum(slot >= 0 for slot in slots)
        assert int(pages.isnan().logical_not().sum()) == written * 2 * rows.shape[2]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("dim", "size"), [(2, 16), (70, 32), (128, 16)])
def test_gather_gives_back_what_was_appended(device: str, dtype: torch.dtype, dim: int, size: int) -> None:
    lengths = [1, 0, 37, size, 150]
    need = [-(-n // size) for n in lengths]
    order = torch.randperm(sum(need) + 2, generator=torch.Generator().manual_seed(1)).tolist()
    table = torch.full((len(lengths), max(need)), -7, dtype=torch.int32)
    slots = []
    for i, (length, count) in enumerate(zip(lengths, need, strict=True)):
        pages = [order.pop() for _ in range(count)]
        table[i, :count] = torch.tensor(pages, dtype=torch.int32)
        slots += [pages[t // size] * size + t % size for t in range(length)]
    k, v = (empty_pages(sum(need) + 2, 3, size, dim, dtype, device) for _ in range(2))
    key, value = (randn(sum(lengths), dim, 3, dtype=dtype).transpose(1, 2).to(device) for _ in range(2))
    ops.kv_append(k, v, key, value, torch.tensor(slots, device=device))
    counts = torch.tensor(lengths, dtype=torch.int32, device=device)
    got = ops.kv_gather(k, v, table.to(device), counts, sum(lengths))
    assert torch.equal(got[0].cpu(), key.cpu())
    assert torch.equal(got[1].cpu(), value.cpu())


@pytest.mark.parametrize("device", DEVICES)
def test_copied_pages_are_those_from_before_the_call(device: str) -> None:
    k, v = randn(6, 2, 16, 4, dtype=torch.bfloat16), randn(6, 2, 16, 6, dtype=torch.bfloat16)
    for source, target in (([0, 0, 3], [1, 5, 2]), ([0, 1], [1, 2]), ([2, 1], [1, 2]), ([], [])):
        keys, values = k.to(device, copy=True), v.to(device, copy=True)
        index = [torch.tensor(pages, dtype=torch.int64, device=device) for pages in (source, target)]
        ops.kv_copy(keys, values, *index)
        for pages, before in ((keys, k), (values, v)):
            expected = before.clone()
            for old, new in zip(source, target, strict=True):
                expected[new] = before[old]
            assert torch.equal(pages.cpu(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_ids_out_of_range_are_named_and_nothing_is_written(device: str) -> None:
    k, v = (torch.zeros(4, 2, 16, 8, device=device) for _ in range(2))
    rows = torch.ones(2, 2, 8, device=device)
    with pytest.raises(IndexError, match=r"slot 64 for token 1.*slots 0 \.\. 63"):
        ops.kv_append(k, v, rows, rows, torch.tensor([3, 64], device=device))
    with pytest.raises(IndexError, match=r"page 4, but there are pages 0 \.\. 3"):
        ops.kv_copy(k, v, torch.tensor([0, 4], device=device), torch.tensor([1, 2], device=device))
    with pytest.raises(ValueError, match="each target once, got page 2 again"):
        ops.kv_copy(k, v, torch.tensor([0, 1], device=device), torch.tensor([2, 2], device=device))
    table = torch.tensor([[0, 9]], dtype=torch.int32, device=device)
    with pytest.raises(IndexError, match="entry 1 of sequence 0 in the page table is page 9"):
        ops.kv_gather(k, v, table, torch.tensor([17], dtype=torch.int32, device=device), 17)
    with pytest.raises(IndexError, match=r"length 33, but the page table holds 0 \.\. 32"):
        ops.kv_gather(k, v, table, torch.tensor([33], dtype=torch.int32, device=device), 33)
    with pytest.raises(ValueError, match="sum of lengths as total, 16, got 15"):
        ops.kv_gather(k, v, table, torch.tensor([16], dtype=torch.int32, device=device), 15)
    assert not k.any()
    assert not v.any()


def test_shapes_that_do_not_fit_are_refused() -> None:
    k = torch.zeros(4, 2, 24, 8)
    slots = torch.tensor([0])
    with pytest.raises(ValueError, match="multiple of 16"):
        ops.kv_append(k, k, torch.ones(1, 2, 8), torch.ones(1, 2, 8), slots)
    odd = torch.zeros(4, 2, 16, 3, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="even dim"):
        ops.kv_append(odd, odd, odd[0, :, :1].transpose(0, 1), odd[0, :, :1].transpose(0, 1), slots)
    pages = torch.zeros(4, 2, 16, 8)
    with pytest.raises(ValueError, match="as the pages have it"):
        ops.kv_append(pages, pages, torch.ones(1, 3, 8), torch.ones(1, 2, 8), slots)


def test_a_captured_graph_appends_where_its_slots_say_at_replay() -> None:
    k, v = (torch.zeros(4, 2, 16, 8, dtype=torch.bfloat16, device="musa") for _ in range(2))
    rows = randn(1, 2, 8, dtype=torch.bfloat16).to("musa")
    slots = torch.tensor([0], device="musa")
    table = torch.tensor([[2]], dtype=torch.int32, device="musa")
    lengths = torch.tensor([4], dtype=torch.int32, device="musa")
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        ops.kv_append(k, v, rows, rows, slots)
        key, _ = ops.kv_gather(k, v, table, lengths, 4)
    slots.fill_(2 * 16 + 3)
    graph.replay()
    torch.musa.synchronize()
    assert torch.equal(key[3], rows[0])
    assert not key[:3].any()


def test_meta_tensors_have_the_shapes() -> None:
    pages = torch.zeros(4, 2, 16, 8, device="meta")
    table, lengths = (torch.zeros(*size, dtype=torch.int32, device="meta") for size in ((3, 2), (3,)))
    key, value = ops.kv_gather(pages, pages, table, lengths, 21)
    assert key.shape == value.shape == (21, 2, 8)


@pytest.mark.parametrize("device", ["musa", "cpu"])
def test_a_wanted_derivative_is_refused(device: str) -> None:
    pages = torch.zeros(2, 1, 16, 4, device=device)
    rows = torch.ones(1, 1, 4, device=device, requires_grad=True)
    slots = torch.tensor([3], device=device)
    table, lengths, starts = (torch.tensor(x, dtype=torch.int32, device=device) for x in ([[0]], [4], [0, 1]))
    calls = {
        "kv_append": lambda: ops.kv_append(pages, pages.clone(), rows, rows, slots),
        "kv_copy": lambda: ops.kv_copy(pages.clone().requires_grad_(), pages.clone(), slots * 0, slots * 0 + 1),
        "kv_gather": lambda: ops.kv_gather(pages.clone().requires_grad_(), pages, table, lengths, 4),
        "paged_attention": lambda: ops.paged_attention(rows, pages, pages, table, starts, lengths, 1, 4),
    }
    for name, call in calls.items():
        with pytest.raises(NotImplementedError, match=f"{name} has no derivative: call it under"):
            call()
        with torch.no_grad():
            call()
