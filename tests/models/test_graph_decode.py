"""A decode step of a Qwen3-MoE as one graph: token for token as eager."""

import importlib.util
import sys
from pathlib import Path

import pytest

STEPS = 64


@pytest.fixture(scope="module")
def decoder():
    """The decoder that benchmarks/graphs.py times."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "graphs.py"
    spec = importlib.util.spec_from_file_location("benchmark_graphs", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.Decoder


def test_decode_step_replayed_equals_eager_token_for_token(decoder):
    eager = decoder(layers=2, hidden=64, steps=STEPS)
    wanted = [eager.eager_step() for _ in range(STEPS)]
    graphed = decoder(layers=2, hidden=64, steps=STEPS)
    graphed.capture()
    assert [graphed.replayed_step() for _ in range(STEPS)] == wanted
    assert len(set(wanted)) > 4  # not one token again and again
