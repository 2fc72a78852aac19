"""Memory of graphs: a pool of their own, given back at the end; and inputs that are no longer there."""

import gc
import os

import pytest
import torch


def capture(body, **options):
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph, **options):
        result = body()
    return graph, result


def reserved():
    """Bytes that the card holds for living tensors and graphs."""
    gc.collect()
    torch.musa.empty_cache()
    return torch.musa.memory_reserved()


def test_pool_goes_back_to_the_card_with_the_graph():
    before = reserved()
    x = torch.ones(1 << 20, device="musa")
    graph, y = capture(lambda x=x: x * 2 + 1)
    held = torch.musa.memory_reserved()
    assert held - before >= 2 * x.nbytes
    del y
    torch.musa.empty_cache()
    assert torch.musa.memory_reserved() - before > x.nbytes  # a replay would write there
    graph.replay()
    del graph, x
    assert reserved() == before


def test_reset_gives_the_pool_back():
    before = reserved()
    x = torch.ones(1 << 18, device="musa")
    graph, total = capture(lambda x=x: (x * 2).sum())
    graph.reset()
    del x, total
    assert reserved() == before


def test_intermediates_share_memory_inside_a_capture():
    x = torch.ones(1 << 20, device="musa")

    def body():
        y = x
        for _ in range(30):
            y = y + 1
        return y

    before = reserved()
    graph, y = capture(body)
    assert torch.musa.memory_reserved() - before <= 6 * x.nbytes
    graph.replay()
    assert y.cpu().eq(31).all()


def test_eager_work_between_replays_leaves_the_graphs_memory_alone():
    x = torch.ones(1000, device="musa")
    graph, y = capture(lambda: ((x + 1) * 2 + 1) * 2)
    graph.replay()
    for _ in range(5):
        junk = [torch.full((1000,), -1.0, device="musa") for _ in range(10)]
        assert y.cpu().eq(10).all()
        graph.replay()
    assert all(one.cpu().eq(-1).all() for one in junk)


def test_graphs_of_one_pool_reuse_memory_and_keep_living_outputs():
    x = torch.ones(1 << 18, device="musa")
    first, a = capture(lambda: (x + 1) * 2)
    held = torch.musa.memory_reserved()
    second, b = capture(lambda: a + (x * 3) * 2, pool=first.pool())
    assert first.pool() == second.pool()
    assert torch.musa.memory_reserved() - held <= 2 * x.nbytes
    first.replay()
    second.replay()
    assert a.cpu().eq(4).all()
    assert b.cpu().eq(10).all()


def test_pool_handle_is_shared_by_several_graphs():
    handle = torch.musa.graph_pool_handle()
    x = torch.ones(8, device="musa")
    graphs = [capture(lambda: x + 1, pool=handle) for _ in range(3)]
    assert {graph.pool() for graph, _ in graphs} == {handle}
    assert torch.musa.graph_pool_handle() != handle


def test_debug_mode_finds_an_input_that_was_freed():
    graph = torch.musa.MUSAGraph()
    graph.enable_debug_mode()
    x, y = torch.ones(300, device="musa"), torch.ones(300, device="musa")
    with torch.musa.graph(graph):
        z = x + y
    graph.replay()
    del y
    with pytest.raises(RuntimeError, match=r"argument 'other' of aten::add.Tensor \(node 0\) is stale.*was freed"):
        graph.replay()
    keep = [torch.ones(300, device="musa") for _ in range(4)]
    with pytest.raises(RuntimeError, match="freed"):
        graph.replay()
    del keep, z


def test_debug_mode_finds_an_input_that_was_resized():
    graph = torch.musa.MUSAGraph()
    x = torch.ones(300, device="musa")
    with torch.musa.graph(graph, check_input_liveness=True):
        x.mul_(2)
    graph.replay()
    x.resize_(100_000)
    with pytest.raises(RuntimeError, match=r"'self' of aten::mul_.Tensor \(node 0\).*resized"):
        graph.replay()


@pytest.mark.skipif(os.environ.get("TORCH_MUSA_SIM_STRICT") == "1", reason="strict mode reports the read")
def test_without_debug_mode_a_stale_input_is_read_as_on_a_card():
    x = torch.ones(300, device="musa")
    graph, y = capture(lambda x=x: x + 1)
    del x
    graph.replay()
    assert y.shape == (300,)


def test_intermediates_are_no_inputs_to_debug_mode():
    x = torch.ones(3, device="musa")
    graph, y = capture(lambda: (torch.zeros(3, device="musa") + x) * 2, check_input_liveness=True)
    graph.replay()
    assert y.cpu().eq(2).all()


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def test_thousands_of_captures_leave_memory_flat():
    x = torch.ones(64, device="musa")

    def cycle(count):
        for _ in range(count):
            graph, y = capture(lambda: (x + 1).relu().sum())
            graph.replay()
            graph.reset()
        return y

    cycle(50)
    gc.collect()
    torch.musa.empty_cache()
    before, held = torch.musa.memory_stats(), resident_bytes()
    cycle(4950)
    gc.collect()
    torch.musa.empty_cache()
    after = torch.musa.memory_stats()
    for name in ("allocated_bytes.all.current", "reserved_bytes.all.current", "active.all.current"):
        assert after[name] == before[name], name
    assert resident_bytes() - held < 8 << 20
