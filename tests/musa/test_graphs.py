"""What a capture leaves untouched, and what a replay does."""

import threading

import pytest
import torch


def capture(body, **options):
    """Captures `body()` and returns (graph, what it returned)."""
    captured = torch.musa.MUSAGraph()
    with torch.musa.graph(captured, **options):
        result = body()
    return captured, result


def test_capture_executes_nothing():
    counter = torch.zeros(8, device="musa")
    weights = torch.ones(8, 8, device="musa")
    torch.musa.manual_seed(3)
    state = torch.musa.get_rng_state()
    calls = {op.name: op.calls for op in torch.musa.op_statistics()}

    def body():
        counter.add_(1)
        weights.mul_(counter)
        return torch.nn.functional.dropout(weights, 0.5)

    graph, out = capture(body)
    assert torch.equal(torch.musa.get_rng_state(), state)
    assert counter.cpu().eq(0).all()
    assert weights.cpu().eq(1).all()
    ran = {op.name: op.calls - calls.get(op.name, 0) for op in torch.musa.op_statistics()}
    assert ran.get("aten::add_.Tensor", 0) == 0
    assert ran.get("aten::native_dropout", 0) == 0
    for count in range(1, 4):
        graph.replay()
        assert counter.cpu().eq(count).all()
    assert weights.cpu().eq(6).all()
    assert set(out.cpu().unique().tolist()) <= {0.0, 12.0}


def test_capture_moves_no_clock():
    x = torch.ones(1 << 20, device="musa")
    stream = torch.musa.Stream()
    graph = torch.musa.MUSAGraph()
    torch.musa.synchronize()
    from torch_musa_sim import _C

    with torch.musa.stream(stream):
        host, tail = _C._host_clock_ns(), _C._stream_tail_ns(stream.stream_id, 0)
        graph.capture_begin()
        y = x * 2 + torch.zeros(1 << 20, device="musa")
        graph.capture_end()
        assert (_C._host_clock_ns(), _C._stream_tail_ns(stream.stream_id, 0)) == (host, tail)
        graph.replay()
        assert _C._host_clock_ns() > host
        assert _C._stream_tail_ns(stream.stream_id, 0) > tail
    torch.musa.synchronize()
    assert y.cpu().eq(2).all()


def test_outputs_hold_poison_until_the_first_replay():
    x = torch.ones(5, device="musa")
    n = torch.ones(5, dtype=torch.int64, device="musa")
    graph, (y, m, z) = capture(lambda: (x + 1, n + 1, torch.zeros(5, device="musa")))
    assert y.cpu().isnan().all()
    assert m.cpu().eq(-1).all()
    assert z.cpu().isnan().all()
    graph.replay()
    assert y.cpu().eq(2).all()
    assert m.cpu().eq(2).all()
    assert z.cpu().eq(0).all()


def test_replay_reads_the_inputs_of_the_moment_and_writes_to_the_same_outputs():
    x = torch.zeros(4, device="musa")
    graph, y = capture(lambda: (x + 1).relu() * 3)
    address = y.data_ptr()
    for value in (0.0, 5.0, -7.0):
        x.fill_(value)
        graph.replay()
        assert y.data_ptr() == address
        assert torch.equal(y.cpu(), (torch.full((4,), value) + 1).relu() * 3)


def test_python_scalars_and_cpu_numbers_keep_the_value_they_had():
    x = torch.ones(3, device="musa")
    factor = torch.tensor(4.0)
    graph, y = capture(lambda: x * factor)
    factor.fill_(100.0)
    graph.replay()
    assert y.cpu().eq(4).all()


def test_replay_on_the_default_stream_and_on_another_thread_stream():
    x = torch.ones(4, device="musa")
    graph, y = capture(lambda: x + 1)
    graph.replay()
    side = torch.musa.Stream()
    side.wait_stream(torch.musa.current_stream())
    with torch.musa.stream(side):
        x.fill_(9)
        graph.replay()
    torch.musa.synchronize()
    assert y.cpu().eq(10).all()


def test_replays_of_several_threads_follow_each_other():
    x = torch.full((192, 192), 1 / 192, device="musa")
    counter = torch.zeros(192, device="musa")

    def body():
        y = torch.ones(192, 192, device="musa")
        for _ in range(8):
            y = y @ x
        counter.add_(y[0])

    graph, _ = capture(body)
    threads = [threading.Thread(target=lambda: [graph.replay() for _ in range(10)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(counter.cpu(), torch.full((192,), 30.0), rtol=1e-4, atol=0)


def test_random_numbers_of_replays_are_those_of_eager_runs():
    x = torch.ones(64, device="musa")

    def body():
        return torch.nn.functional.dropout(x, 0.4), torch.rand(7, device="musa"), torch.randn(9, device="musa")

    graph, outputs = capture(body)
    torch.musa.manual_seed(11)
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append([value.cpu() for value in outputs])
    torch.musa.manual_seed(11)
    for run in replayed:
        for one, other in zip(run, body(), strict=True):
            assert torch.equal(one, other.cpu())
    assert not torch.equal(replayed[0][1], replayed[1][1])


def test_own_generator_advances_with_each_replay():
    generator = torch.Generator("musa").manual_seed(5)
    graph = torch.musa.MUSAGraph()
    graph.register_generator_state(generator)
    out = torch.empty(6, device="musa")
    with torch.musa.graph(graph):
        out.uniform_(generator=generator)
    graph.replay()
    first = out.cpu()
    graph.replay()
    again = torch.Generator("musa").manual_seed(5)
    assert torch.equal(first, torch.empty(6, device="musa").uniform_(generator=again).cpu())
    assert torch.equal(out.cpu(), torch.empty(6, device="musa").uniform_(generator=again).cpu())


def test_backward_inside_a_capture_runs_in_the_engines_threads_and_is_captured():
    x = torch.randn(5, 3, device="musa", requires_grad=True)
    w = torch.randn(3, 2, device="musa", requires_grad=True)
    (x @ w).square().sum().backward()
    expected = x.grad.cpu(), w.grad.cpu()
    x.grad = w.grad = None

    def body():
        (x @ w).square().sum().backward()
        return x.grad, w.grad

    graph, grads = capture(body)
    assert all(grad.cpu().isnan().all() for grad in grads)
    graph.replay()
    for grad, wanted in zip(grads, expected, strict=True):
        assert torch.equal(grad.cpu(), wanted)


def test_out_argument_is_resized_at_capture():
    x = torch.arange(6.0, device="musa")
    out = torch.empty(0, device="musa")
    graph, _ = capture(lambda: torch.cumsum(x, 0, out=out))
    assert out.shape == (6,)
    graph.replay()
    assert torch.equal(out.cpu(), torch.arange(6.0).cumsum(0))


def test_pinned_copies_are_read_and_written_at_each_replay():
    source = torch.zeros(4).pin_memory()
    target = torch.zeros(4).pin_memory()
    x = torch.zeros(4, device="musa")

    def body():
        x.copy_(source, non_blocking=True)
        target.copy_(x * 2, non_blocking=True)

    graph, _ = capture(body)
    source.fill_(3)
    graph.replay()
    torch.musa.synchronize()
    assert target.eq(6).all()
    assert x.cpu().eq(3).all()


def test_wrong_shapes_are_an_error_of_the_capture_and_leave_it_usable():
    x = torch.ones(3, device="musa")
    graph = torch.musa.MUSAGraph()
    with torch.musa.graph(graph):
        with pytest.raises(RuntimeError, match="size of tensor"):
            x + torch.ones(4, device="musa")
        y = x + 1
    graph.replay()
    assert y.cpu().eq(2).all()


def test_a_graph_costs_one_launch():
    from torch_musa_sim import _C

    x = torch.ones(16, device="musa")

    def body():
        y = x
        for _ in range(50):
            y = y + 1
        return y

    graph, _y = capture(body)
    torch.musa.synchronize()
    before = _C._host_clock_ns()
    body()
    eager = _C._host_clock_ns() - before
    torch.musa.synchronize()
    before = _C._host_clock_ns()
    graph.replay()
    assert _C._host_clock_ns() - before == 27_900
    assert eager == 50 * 6_260
    # the device still needs what the kernels need
    assert _C._stream_tail_ns(0, 0) - _C._host_clock_ns() >= 50 * 3_000


def test_accelerator_graph_captures_and_replays():
    x = torch.zeros(4, device="musa")
    graph = torch.accelerator.Graph()
    with torch.Stream(device="musa"), graph:
        x += 1
    assert x.cpu().eq(0).all()
    graph.replay()
    graph.replay()
    assert x.cpu().eq(2).all()
    graph.reset()


def test_keep_graph_instantiates_later_and_shows_its_nodes():
    x = torch.ones(3, device="musa")
    graph = torch.musa.MUSAGraph(keep_graph=True)
    with torch.musa.graph(graph):
        y = (x + 1) * 2
    with pytest.raises(RuntimeError, match="before it is instantiated"):
        graph.raw_musa_graph_exec()
    graph.instantiate()
    data = graph.get_graph_data()
    assert [node["kernel_name"] for node in data["nodes"]] == ["aten::add.Tensor", "aten::mul.Tensor"]
    assert data["nodes"][1]["dependencies"] == [0]
    assert data["nodes"][0]["dependents"] == [1]
    assert data["exec_graph_id"] == graph.raw_musa_graph_exec()
    graph.replay()
    assert y.cpu().eq(4).all()
    with pytest.raises(RuntimeError, match="keep_graph=True"):
        torch.musa.MUSAGraph().raw_musa_graph()


def test_debug_dump_writes_graphviz(tmp_path):
    x = torch.ones(2, 3, device="musa")
    graph = torch.musa.MUSAGraph()
    graph.enable_debug_mode()
    with torch.musa.graph(graph):
        _ = (x @ x.t()).softmax(-1)
    path = tmp_path / "graph.dot"
    graph.debug_dump(path)
    text = path.read_text()
    assert text.startswith("digraph musa_graph {")
    assert text.rstrip().endswith("}")
    assert "aten::mm" in text
    assert "[2, 2]" in text
    assert "n0 -> n1;" in text


def test_debug_dump_without_debug_mode_warns_and_writes_nothing(tmp_path):
    graph, _ = capture(lambda: torch.ones(2, device="musa"))
    with pytest.warns(UserWarning, match="debug not enabled"):
        graph.debug_dump(tmp_path / "graph.dot")
    assert not (tmp_path / "graph.dot").exists()


def test_states_of_a_graph_are_told_apart():
    graph = torch.musa.MUSAGraph()
    with pytest.raises(RuntimeError, match="replay without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.pool()
    with pytest.raises(RuntimeError, match="without a capture_begin"):
        graph.capture_end()
    x = torch.ones(2, device="musa")
    with torch.musa.graph(graph):
        x.add_(1)
    assert torch.musa.MUSAGraph.get_latest_instance() is graph
    with pytest.raises(RuntimeError, match="already owns a captured graph"), torch.musa.graph(graph):
        pass
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding"):
        graph.replay()
    with torch.musa.graph(graph):
        x.add_(10)
    graph.replay()
    assert x.cpu().eq(11).all()


def test_empty_capture_warns():
    graph = torch.musa.MUSAGraph()
    with pytest.warns(UserWarning, match="Graph is empty"), torch.musa.graph(graph):
        pass
    graph.replay()
