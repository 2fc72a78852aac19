"""A graph that can't be compiled runs in eager mode, after one warning."""

import warnings

import torch
from compiled import MUSA, assert_close, regions


def test_one_warning_and_the_eager_result():
    x = torch.randn(5)
    f = torch.compile(lambda x: x.sin() + x.cos() * 3, fullgraph=True)
    with torch._inductor.config.patch({"cpp.cxx": ("no_such_compiler",)}), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            assert_close(f(x.to(MUSA)), x.sin() + x.cos() * 3)
    ours = [str(w.message) for w in seen if "torch.compile runs" in str(w.message)]
    assert len(ours) == 1
    assert "musa:0" in ours[0]
    assert "no_such_compiler" in ours[0]
    assert not regions()
    assert "aten::sin" in {op.name for op in torch.musa.op_statistics()}


def test_training_graph_that_cannot_be_compiled_still_trains():
    weight = torch.randn(4, 4, device=MUSA, requires_grad=True)
    f = torch.compile(lambda w: (w @ w).tanh().sum(), fullgraph=True)
    with torch._inductor.config.patch({"cpp.cxx": ("no_such_compiler",)}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(weight).backward()
    expected = weight.detach().cpu().requires_grad_()
    (expected @ expected).tanh().sum().backward()
    assert_close(weight.grad, expected.grad)
