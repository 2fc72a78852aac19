"""Small programs with a race between streams, each with its mended twin, for the race checker to judge.

Run as a script (TORCH_MUSA_SIM_STRICT=1): prints one JSON object, name -> [report of the racy program, of its twin].
An empty report means that the program ran to its end.
"""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable

import torch

Program = Callable[[bool], object]
# What a report must say, by program: operators, streams, and the word that points at the cure.
EXPECTED: dict[str, tuple[str, ...]] = {}
PROGRAMS: dict[str, Program] = {}

SIDE = "on torch.musa.Stream(device=musa:0, stream_id="
MAIN = "on the default stream of musa:0"


def racy(*words: str) -> Callable[[Program], Program]:
    """`program(mended)` races unless `mended`; its report then holds `words`."""

    def note(program: Program) -> Program:
        PROGRAMS[program.__name__] = program
        EXPECTED[program.__name__] = words
        return program

    return note


def vector(device: str = "musa") -> torch.Tensor:
    return torch.ones(1024, device=device)


def forked() -> tuple[torch.musa.Stream, torch.musa.Stream]:
    """The current stream, and one that waits for all that the current one has been given."""
    main, side = torch.musa.current_stream(), torch.musa.Stream()
    side.wait_stream(main)
    return main, side


def filled() -> tuple[torch.Tensor, torch.musa.Stream, torch.musa.Stream]:
    """A tensor made on the main stream, which a side stream has been made to wait for."""
    x = vector()
    return x, *forked()


@racy("aten::add_.Tensor writes " + SIDE, "aten::mul.Tensor reads " + MAIN, "has never waited for", "wait_stream")
def result_of_a_side_stream_without_wait(mended: bool) -> None:
    x, main, side = filled()
    with torch.musa.stream(side):
        x.add_(1)
    if mended:
        main.wait_stream(side)
    x * 2


@racy("aten::add_.Tensor writes " + SIDE, "aten::mul.Tensor reads " + MAIN, "wait_event")
def read_before_wait_event(mended: bool) -> None:
    x, main, side = filled()
    with torch.musa.stream(side):
        x.add_(1)
    done = side.record_event()
    if mended:
        main.wait_event(done)
    x * 2
    main.wait_event(done)


@racy(
    "aten::sub_.Tensor writes " + SIDE, "aten::mul.Tensor reads " + MAIN, "ends before aten::sub_.Tensor was launched"
)
def event_recorded_too_early(mended: bool) -> None:
    x, main, side = filled()
    with torch.musa.stream(side):
        x.add_(1)
        done = side.record_event()
        x.sub_(1)
        if mended:
            done.record(side)
    main.wait_event(done)
    x * 2


@racy("aten::sum.dim_IntList reads " + SIDE, "aten::fill_.Scalar writes " + MAIN, "record_stream")
def freed_without_record_stream(mended: bool) -> None:
    x, _, side = filled()
    with torch.musa.stream(side):
        x.sum()
    if mended:
        x.record_stream(side)
    del x
    vector()


@racy("aten::mul.Tensor reads " + SIDE, "aten::fill_.Scalar writes " + MAIN, "record_stream")
def temporary_of_the_main_stream_used_on_another(mended: bool) -> None:
    main, side = forked()
    for _ in range(3):
        x = vector()
        side.wait_stream(main)
        with torch.musa.stream(side):
            x * 2
        if mended:
            main.wait_stream(side)


@racy("aten::add_.Tensor writes " + MAIN, "after it was freed")
def use_after_free(mended: bool) -> None:
    x = vector()
    storage = torch._C._construct_storage_from_data_pointer(x.data_ptr(), x.device, x.nbytes)
    view = torch.empty(0, device="musa").set_(storage, 0, (1024,))
    if not mended:
        del x
    view.add_(1)


@racy("aten::add_.Tensor writes " + SIDE, "aten::mul_.Tensor writes " + MAIN)
def in_place_on_two_streams(mended: bool) -> None:
    x, main, side = filled()
    with torch.musa.stream(side):
        x.add_(1)
    if mended:
        main.wait_stream(side)
    x.mul_(2)


@racy("aten::sum.dim_IntList reads " + SIDE, "aten::zero_ writes " + MAIN)
def overwritten_while_another_stream_reads(mended: bool) -> None:
    x, main, side = filled()
    with torch.musa.stream(side):
        x.sum()
    if mended:
        main.wait_stream(side)
    x.zero_()


@racy("the host reads for aten::mul.Tensor", "aten::_copy_from", MAIN, "synchronize")
def host_scalar_read_before_sync(mended: bool) -> None:
    x = vector()
    total = x.sum().to("cpu", non_blocking=True)
    if mended:
        torch.musa.current_stream().synchronize()
    x * total


@racy("the host has changed the source of aten::_copy_from", MAIN, "synchronize")
def pinned_source_overwritten(mended: bool) -> None:
    source = torch.ones(1024).pin_memory()
    source.to("musa", non_blocking=True)
    if mended:
        torch.musa.current_stream().synchronize()
    source.zero_()
    torch.musa.synchronize()


@racy("the host has written to the target of aten::_copy_from", MAIN, "synchronize")
def pinned_target_written_before_the_copy_is(mended: bool) -> None:
    x, target = vector(), torch.empty(1024).pin_memory()
    target.copy_(x, non_blocking=True)
    if mended:
        torch.musa.current_stream().synchronize()
    target.zero_()
    torch.musa.synchronize()


@racy("aten::_copy_from reads " + MAIN, "aten::_copy_from writes " + SIDE, "page-locked memory")
def pinned_buffer_shared_by_two_copies(mended: bool) -> None:
    x, y, buffer = vector(), vector(), torch.ones(1024).pin_memory()
    main, side = forked()
    y.copy_(buffer, non_blocking=True)
    if mended:
        side.wait_stream(main)
    with torch.musa.stream(side):
        buffer.copy_(x, non_blocking=True)


@racy("aten::add_.Tensor writes " + SIDE, "aten::_copy_from reads " + MAIN)
def peer_copy_of_what_a_side_stream_makes(mended: bool) -> None:
    x, main, side = filled()
    with torch.musa.stream(side):
        x.add_(1)
    if mended:
        main.wait_stream(side)
    x.to("musa:1")


@racy("aten::_copy_from writes " + MAIN, "aten::mul.Tensor reads on torch.musa.Stream(device=musa:1, stream_id=")
def peer_copy_used_on_a_side_stream_of_its_card(mended: bool) -> None:
    side = torch.musa.Stream(device=1)
    y = vector().to("musa:1")
    if mended:
        side.wait_stream(torch.musa.current_stream(1))
    with torch.musa.stream(side):
        y * 2


@racy(
    "aten::mul_.Tensor writes on the default stream of musa:1", "aten::_copy_from reads on torch.musa.Stream(device=m"
)
def peer_copy_on_a_side_stream_of_the_source(mended: bool) -> None:
    main = torch.musa.current_stream(1)
    side = torch.musa.Stream(device=1)
    x = vector("musa:1")
    side.wait_stream(main)
    x.mul_(2)
    if mended:
        side.wait_stream(main)
    with torch.musa.stream(side):
        x.to("musa:0")


@racy("aten::_copy_from writes " + SIDE, "aten::mul.Tensor reads " + MAIN)
def prefetched_batch_used_without_wait(mended: bool) -> None:
    batch = torch.ones(1024).pin_memory()
    main, side = forked()
    with torch.musa.stream(side):
        x = batch.to("musa", non_blocking=True)
    if mended:
        main.wait_stream(side)
    x * 2
    x.record_stream(main)


@racy("aten::_copy_from writes " + SIDE, "aten::mul.Tensor reads " + MAIN)
def pageable_batch_used_without_wait(mended: bool) -> None:
    main, side = forked()
    with torch.musa.stream(side):
        x = torch.ones(1024).to("musa", non_blocking=True)
    if mended:
        main.wait_stream(side)
    x * 2
    x.record_stream(main)


@racy("aten::mul.Tensor reads " + MAIN, "aten::_copy_from writes " + SIDE, "record_stream")
def prefetcher_that_forgets_record_stream(mended: bool) -> None:
    batches = [torch.full((1024,), float(i)).pin_memory() for i in range(6)]
    main, side = forked()

    def preload(index: int) -> torch.Tensor:
        with torch.musa.stream(side):
            return batches[index].to("musa", non_blocking=True)

    following = preload(0)
    for index in range(1, 6):
        main.wait_stream(side)
        batch = following
        if mended:
            batch.record_stream(main)
        following = preload(index)
        batch * 2
        del batch


@racy("writes " + SIDE, "aten::add_.Tensor writes " + MAIN)
def backward_on_a_side_stream_without_join(mended: bool) -> None:
    weight = torch.ones(32, 32, device="musa", requires_grad=True)
    main, side = forked()
    with torch.musa.stream(side):
        (weight @ weight).sum().backward()
    if mended:
        main.wait_stream(side)
    weight.grad.add_(1)


@racy("aten::mul.Tensor writes " + SIDE, "aten::sum.dim_IntList reads " + MAIN)
def forward_result_taken_from_a_side_stream(mended: bool) -> None:
    weight = torch.ones(32, device="musa", requires_grad=True)
    main, side = forked()
    with torch.musa.stream(side):
        y = weight * 2
    if mended:
        main.wait_stream(side)
    y.sum().backward()
    torch.musa.synchronize()


@racy("aten::sum.IntList_out writes " + SIDE, "aten::sum.IntList_out writes " + SIDE)
def reduction_buffer_of_two_streams(mended: bool) -> None:
    x, y, total = vector(), vector(), torch.zeros((), device="musa")
    _, first = forked()
    _, second = forked()
    with torch.musa.stream(first):
        torch.sum(x, 0, out=total)
    if mended:
        second.wait_stream(first)
    with torch.musa.stream(second):
        torch.sum(y, 0, out=total)


@racy("aten::fill_.Scalar writes " + MAIN, "aten::mul.Tensor reads " + SIDE)
def side_stream_does_not_wait_for_the_default_one(mended: bool) -> None:
    side = torch.musa.Stream()
    x = vector()
    if mended:
        side.wait_stream(torch.musa.current_stream())
    with torch.musa.stream(side):
        x * 2


@racy("aten::fill_.Scalar writes " + MAIN, "aten::zero_ writes " + SIDE, "allocated on the default stream")
def new_memory_used_first_on_another_stream(mended: bool) -> None:
    side = torch.musa.Stream()
    x = vector()
    del x
    y = torch.empty(1024, device="musa")
    if mended:
        side.wait_stream(torch.musa.current_stream())
    with torch.musa.stream(side):
        y.zero_()


@racy("aten::add_.Tensor writes " + SIDE, "aten::mul.Tensor reads " + MAIN)
def event_recorded_again_elsewhere(mended: bool) -> None:
    x, main, side = filled()
    other = torch.musa.Stream()
    done = torch.musa.Event()
    with torch.musa.stream(side):
        x.add_(1)
    done.record(side)
    if not mended:
        done.record(other)
    main.wait_event(done)
    x * 2


@racy("aten::normal_ writes " + SIDE, "aten::tril reads " + MAIN)
def native_operators_on_two_streams(mended: bool) -> None:
    x, main, side = filled()
    with torch.musa.stream(side):
        x.normal_()
    if mended:
        main.wait_stream(side)
    torch.tril(x.view(32, 32), out=torch.empty(32, 32, device="musa"))


@racy("aten::add_.Tensor writes " + SIDE, "aten::mul.Tensor reads " + MAIN)
def thread_is_joined_and_its_stream_is_not(mended: bool) -> None:
    x, _, side = filled()

    def work() -> None:
        with torch.musa.stream(side):
            x.add_(1)
        if mended:
            side.synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    x * 2


@racy("aten::add_.Tensor writes " + SIDE, "aten::mul.Tensor reads " + MAIN, "64 bytes")
def overlapping_slices_on_two_streams(mended: bool) -> None:
    x, _, side = filled()
    with torch.musa.stream(side):
        x[:512].add_(1)
    x[512:] * 2
    x[512 if mended else 496 :] * 2


# Correct programs of several streams: nothing may be reported, and they check their own numbers.
CLEAN: dict[str, Callable[[], None]] = {}


def clean(program: Callable[[], None]) -> Callable[[], None]:
    CLEAN[program.__name__] = program
    return program


@clean
def training_with_branches_on_streams_of_their_own() -> None:
    torch.manual_seed(0)
    model = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))
    on_card = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3)).to("musa")
    on_card.load_state_dict(model.state_dict())
    batch = torch.randn(8, 16)
    streams = [torch.musa.Stream() for _ in model]

    def branches(x: torch.Tensor) -> list[torch.Tensor]:
        main, parts = torch.musa.current_stream(), []
        for layer, side in zip(on_card, streams, strict=True):
            side.wait_stream(main)
            with torch.musa.stream(side):
                parts.append(layer(x).relu())
        for part, side in zip(parts, streams, strict=True):
            main.wait_stream(side)
            part.record_stream(main)
        return parts

    optimizers = [torch.optim.AdamW(each.parameters()) for each in (model, on_card)]
    for _ in range(4):
        sum(layer(batch).relu() for layer in model).square().mean().backward()
        loss = sum(branches(batch.to("musa"))).square().mean()
        with torch.musa.stream(streams[0]):  # backward runs on the streams of the forward, and waits for the caller's
            streams[0].wait_stream(torch.musa.default_stream())
            loss.backward()
        torch.musa.current_stream().wait_stream(streams[0])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for mine, theirs in zip(model.parameters(), on_card.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs.cpu())


@clean
def activations_offloaded_and_fetched_back() -> None:
    main, out, back = torch.musa.current_stream(), torch.musa.Stream(), torch.musa.Stream()
    kept, expected = [], []
    for i in range(8):
        x = torch.full((256,), float(i), device="musa")
        expected.append(i * 2)
        x.mul_(2)
        out.wait_stream(main)
        with torch.musa.stream(out):
            kept.append(torch.empty(256).pin_memory())
            kept[-1].copy_(x, non_blocking=True)
        x.record_stream(out)
        del x
    back.wait_stream(out)
    for host, value in zip(reversed(kept), reversed(expected), strict=True):
        with torch.musa.stream(back):
            y = host.to("musa", non_blocking=True)
        main.wait_stream(back)
        y.record_stream(main)
        assert (y == value).all().item()


@clean
def pipeline_over_two_cards_with_pinned_batches() -> None:
    first, second = torch.musa.Stream(device=0), torch.musa.Stream(device=1)
    results = []
    for i in range(6):
        batch = torch.full((64,), float(i)).pin_memory()
        with torch.musa.stream(first):
            x = batch.to("musa:0", non_blocking=True) + 1
            with torch.musa.stream(second):
                pass
            with torch.musa.device(1), torch.musa.stream(second):
                y = x.to("musa:1") * 2
                x.record_stream(first)
                results.append(y.to("cpu", non_blocking=True))
    second.synchronize()
    assert [result[0].item() for result in results] == [2.0 * (i + 1) for i in range(6)]


@clean
def buffers_used_in_turns_and_freed_by_another_thread() -> None:
    main, side = torch.musa.current_stream(), torch.musa.Stream()
    buffers = [torch.zeros(512, device="musa") for _ in range(2)]
    free = [main.record_event() for _ in buffers]
    for i in range(10):
        turn = i % 2
        side.wait_event(free[turn])
        with torch.musa.stream(side):
            buffers[turn].fill_(i)
        main.wait_event(side.record_event())
        assert buffers[turn].sum().item() == 512 * i
        free[turn] = main.record_event()
    thread = threading.Thread(target=buffers.clear)
    thread.start()
    thread.join()
    torch.ones(512, device="musa").sum()


def report_of(program: Program, mended: bool) -> str:
    text = ""
    try:
        program(mended)
    except (RuntimeError, AssertionError) as error:
        text = str(error) or repr(error)
    gc.collect()  # an exception's frames hold tensors
    try:
        torch.musa.synchronize(0)
        torch.musa.synchronize(1)
    except RuntimeError as error:
        text += str(error)
    torch.musa.empty_cache()
    return text


if __name__ == "__main__":
    reports: dict[str, list[str]]
    reports = {name: [report_of(each, mended) for mended in (False, True)] for name, each in PROGRAMS.items()}
    reports |= {name: [report_of(lambda _, each=each: each(), True)] for name, each in CLEAN.items()}
    print(json.dumps(reports))
