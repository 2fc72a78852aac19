"""torch.export, and the other ways into the compiler."""

import io

import pytest
import torch
from compiled import MUSA, assert_close, regions
from torch import nn


@pytest.fixture(scope="module")
def exported():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU()).to(MUSA)
    rows = {0: torch.export.Dim("rows")}
    return model, torch.export.export(model, (torch.randn(3, 4, device=MUSA),), dynamic_shapes=(rows,))


def test_exported_program_runs_is_saved_and_loaded(exported):
    model, program = exported
    x = torch.randn(5, 4, device=MUSA)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for same in (program, program.run_decompositions(), torch.export.load(file)):
        assert_close(same.module()(x), model(x))


def test_exported_program_can_be_compiled(exported):
    model, program = exported
    x = torch.randn(5, 4, device=MUSA)
    assert_close(torch.compile(program.module())(x), model(x))
    assert len(regions()) == 1


def test_ahead_of_time_compilation_says_that_it_is_not_there(exported):
    with pytest.raises(NotImplementedError, match=r"AOTInductor.*torch\.compile"):
        torch._inductor.aoti_compile_and_package(exported[1])


def test_inductor_called_with_a_graph():
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.randn(4, device=MUSA)
    graph = make_fx(lambda x: (x.sin() + 1,))(x)
    assert_close(torch._inductor.compile(graph, [x])(x)[0], x.sin() + 1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_without_a_compiler(backend):
    x = torch.randn(4)
    f = torch.compile(lambda x: x.sin() * 2, backend=backend, fullgraph=True)
    assert_close(f(x.to(MUSA)), x.sin() * 2)


def test_backends_are_listed():
    assert {"inductor", "musagraphs"} <= set(torch._dynamo.list_backends())
