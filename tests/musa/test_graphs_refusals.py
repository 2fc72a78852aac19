"""What can't be part of a graph is refused in CUDA's words, and the process stays usable."""

import pytest
import torch

CAPTURING = "operation not permitted when stream is capturing"
INVALIDATED = "operation failed due to a previous error during capture"


def capture(graph, body):
    with torch.musa.graph(graph):
        return body()


def refused(body, match):
    """Captures `body`, expects its refusal and that of the capture's end; then shows that capturing works again."""
    graph = torch.musa.MUSAGraph()

    def attempt():
        with pytest.raises(RuntimeError, match=match):
            body()

    with pytest.raises(RuntimeError, match=INVALIDATED):
        capture(graph, attempt)
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    assert not torch.musa.is_current_stream_capturing()
    x = torch.zeros(3, device="musa")
    with torch.musa.graph(graph):
        y = x + 1
    graph.replay()
    assert y.cpu().eq(1).all()


def tensors():
    return torch.arange(6.0, device="musa").reshape(2, 3), torch.tensor([True, False, True]).to("musa")


BODIES = {
    "item": lambda x, mask: x.sum().item(),
    "bool": lambda x, mask: bool(x.sum() > 0),
    "nonzero": lambda x, mask: mask.nonzero(),
    "masked_select": lambda x, mask: x.masked_select(mask),
    "mask_index": lambda x, mask: x[:, mask],
    "mask_write": lambda x, mask: x[0].index_put_((mask,), x[1, :2]),
    "unique": lambda x, mask: x.unique(),
    "equal": lambda x, mask: torch.equal(x, x),
    "repeat_interleave": lambda x, mask: x[0].repeat_interleave(mask.int()),
    "bincount": lambda x, mask: mask.int().bincount(),
    "synchronize": lambda x, mask: torch.musa.synchronize(),
    "stream_synchronize": lambda x, mask: torch.musa.current_stream().synchronize(),
    "stream_query": lambda x, mask: torch.musa.current_stream().query(),
    "accelerator_synchronize": lambda x, mask: torch.accelerator.synchronize(),
    "pinned_but_blocking": lambda x, mask: x.copy_(torch.zeros(2, 3).pin_memory()),
}


@pytest.mark.parametrize("name", BODIES)
def test_waiting_for_the_card_is_refused(name):
    x, mask = tensors()
    refused(lambda: BODIES[name](x, mask), CAPTURING)


UNPINNED = {
    "cpu": lambda x: x.cpu(),
    "to_musa": lambda x: torch.ones(3).to("musa"),
    "tensor": lambda x: torch.tensor([1.0], device="musa"),
    "numpy": lambda x: x.tolist(),
    "cpu_index": lambda x: x[torch.tensor([0, 1])],
}


@pytest.mark.parametrize("name", UNPINNED)
def test_copies_between_card_and_pageable_memory_are_refused(name):
    x, _ = tensors()
    text = "Cannot copy between CPU and MUSA tensors during MUSA graph capture unless the CPU tensor is pinned"
    refused(lambda: UNPINNED[name](x), text)


def test_event_of_a_capture_has_no_time():
    def body():
        event = torch.musa.Event()
        event.record()
        event.synchronize()

    refused(body, "event last recorded in a capturing stream")


def test_waiting_for_work_outside_is_refused():
    event = torch.musa.Event()
    event.record(torch.musa.Stream())
    refused(lambda: torch.musa.current_stream().wait_event(event), "dependency created on uncaptured work")


def test_operators_after_a_refusal_are_refused_until_the_end():
    x, _ = tensors()

    def body():
        with pytest.raises(RuntimeError, match=CAPTURING):
            x.sum().item()
        with pytest.raises(RuntimeError, match=INVALIDATED):
            x.add(1)

    with pytest.raises(RuntimeError, match=INVALIDATED):
        capture(torch.musa.MUSAGraph(), body)


def test_default_stream_is_refused():
    graph = torch.musa.MUSAGraph()
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        graph.capture_begin()
    assert not torch.musa.is_current_stream_capturing()


def test_replay_into_a_capture_is_refused():
    inner = torch.musa.MUSAGraph()
    x, _ = tensors()
    with torch.musa.graph(inner):
        x.add_(1)
    refused(inner.replay, CAPTURING)


def test_sparse_tensors_are_refused():
    sparse = torch.eye(3, device="musa").to_sparse()
    dense = torch.eye(3, device="musa")
    refused(lambda: sparse * 2, CAPTURING)
    refused(dense.to_sparse, CAPTURING)
    refused(dense.to_sparse_csr, CAPTURING)


def test_unknown_error_mode_is_refused():
    graph = torch.musa.MUSAGraph()
    text = "Expected `global`, `thread_local`, or `relaxed`, got lax"
    with torch.musa.stream(torch.musa.Stream()), pytest.raises(ValueError, match=text):
        graph.capture_begin(capture_error_mode="lax")


def test_exception_of_the_program_leaves_a_graph_of_what_came_before():
    x = torch.zeros(2, device="musa")
    graph = torch.musa.MUSAGraph()

    def body():
        x.add_(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        capture(graph, body)
    graph.replay()
    assert x.cpu().eq(1).all()


def test_generator_of_the_cpu_is_refused():
    with pytest.raises(RuntimeError, match="Expected a 'musa' device type for generator"):
        torch.musa.MUSAGraph().register_generator_state(torch.Generator())


def test_annotations_are_refused():
    with pytest.raises(NotImplementedError, match="enable_annotations"):
        torch.musa.graph(torch.musa.MUSAGraph(), enable_annotations=True)
