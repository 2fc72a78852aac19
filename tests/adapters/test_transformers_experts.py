"""transformers' mixtures of experts run through torch.ops.musa.fused_moe on musa."""

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import transformers
from transformers.integrations import moe

from torch_musa_sim.adapters import experts as adapter


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(verbosity)


def make_model(dtype: torch.dtype = torch.float32, activation: str = "silu") -> torch.nn.Module:
    config = transformers.Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        moe_intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=8,
        num_experts_per_tok=2,
        hidden_act=activation,
        initializer_range=0.2,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()


PROMPT = torch.arange(1, 13).reshape(2, 6)


def calls() -> int:
    return sum(op.calls for op in torch.musa.op_statistics() if op.name == "musa::fused_moe")


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_pytorch_tanh"])
def test_unmodified_generate_chooses_the_same_tokens(activation: str) -> None:
    model = make_model(activation=activation)
    expected = model.generate(PROMPT, max_new_tokens=8, do_sample=False)
    model = model.to("musa")
    torch.musa.reset_op_statistics()
    got = model.generate(PROMPT.to("musa"), max_new_tokens=8, do_sample=False)
    assert calls() == 2 * 8  # layers, steps: the prompt and the tokens after it
    assert not any(op.name == "aten::bmm.out" for op in torch.musa.op_statistics())
    assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm", "musa_fused_moe"])
def test_logits_equal_those_of_the_cpu(implementation: str) -> None:
    model = make_model()
    model.set_experts_implementation(implementation)
    with torch.no_grad():
        expected = model(PROMPT).logits
        torch.musa.reset_op_statistics()
        got = model.to("musa")(PROMPT.to("musa")).logits
    assert calls() == 2
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_eager_experts_stay_eager() -> None:
    model = make_model().to("musa")
    model.set_experts_implementation("eager")
    torch.musa.reset_op_statistics()
    with torch.no_grad():
        model(PROMPT.to("musa"))
    assert calls() == 0


def test_training_takes_transformers_own_way() -> None:
    model = make_model()
    model(PROMPT).logits.square().mean().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model = make_model().to("musa")
    torch.musa.reset_op_statistics()
    model(PROMPT.to("musa")).logits.square().mean().backward()
    assert calls() == 0
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), gradient, rtol=1e-3, atol=1e-4)


def test_other_kinds_of_experts_take_transformers_own_way() -> None:
    layer = make_model().to("musa").model.layers[0].mlp.experts
    x = torch.randn(3, 32, device="musa")
    ids = torch.tensor([[0, 1], [2, 3], [7, 0]], device="musa")
    weights = torch.rand(3, 2, device="musa")
    with torch.no_grad():
        expected = layer(x, ids, weights)
        torch.musa.reset_op_statistics()
        layer.act_fn = torch.nn.ReLU()
        assert not torch.allclose(layer(x, ids, weights), expected)
        layer.act_fn = torch.nn.SiLU()
        layer.has_bias = True
        layer.gate_up_proj_bias = torch.zeros(8, 48, device="musa")
        layer.down_proj_bias = torch.zeros(8, 32, device="musa")
        torch.testing.assert_close(layer(x, ids, weights), expected, rtol=1e-4, atol=1e-5)
        layer.has_bias = False
        layer(x.double(), ids, weights)
        assert calls() == 0
        layer(x, ids, weights)
        assert calls() == 1


def test_experts_of_other_ranks_are_left_out() -> None:
    model = make_model().to("musa")
    layer = model.model.layers[0].mlp.experts
    layer._is_expert_parallel = True
    x = torch.randn(3, 32, device="musa")
    ids = torch.tensor([[0, 8], [8, 8], [7, 1]], device="musa")
    weights = torch.rand(3, 2, device="musa").masked_fill(ids == 8, 0)
    with torch.no_grad():
        got = layer(x, ids, weights)
        model.set_experts_implementation("eager")
        torch.testing.assert_close(got, layer(x, ids, weights), rtol=1e-4, atol=1e-5)
    assert got[1].eq(0).all()


@pytest.mark.parametrize("missing", ["ExpertsInterface", "_default_apply_gate", "grouped_mm"])
def test_other_versions_of_transformers_are_left_as_they_are(missing: str) -> None:
    class ExpertsInterface:
        _global_mapping: ClassVar[dict[str, object]] = {"grouped_mm": len, "batched_mm": len}

        @classmethod
        def register(cls, name: str, function: object) -> None:
            cls._global_mapping[name] = function

    module = types.ModuleType("other")
    module.ExpertsInterface, module._default_apply_gate = ExpertsInterface, len
    if missing == "grouped_mm":
        del ExpertsInterface._global_mapping[missing]
    else:
        delattr(module, missing)
    before = dict(ExpertsInterface._global_mapping)
    adapter.install(module)
    assert ExpertsInterface._global_mapping == before


# A package with the names that matter here, which takes no seconds to import.
FAKE = {
    "__init__.py": "",
    "integrations/__init__.py": "",
    "integrations/moe.py": """
import torch
class ExpertsInterface:
    _global_mapping = {"grouped_mm": len, "batched_mm": len}
    @classmethod
    def register(cls, name, function):
        cls._global_mapping[name] = function
_default_apply_gate = len
""",
    "modeling_utils.py": "import torch, transformers.integrations.moe",
}
REPORT = """
import sys
from transformers.integrations import moe
functions = moe.ExpertsInterface._global_mapping
print("musa_fused_moe" in functions, functions["grouped_mm"] is len)
"""


def run(folder: Path, code: str, **environment: str) -> str:
    for name, text in FAKE.items():
        file = folder / "transformers" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    everything = {**os.environ, "PYTHONPATH": str(folder), "TORCH_MUSA_SIM_NATIVE": "1", **environment}
    child = subprocess.run([sys.executable, "-c", code], env=everything, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return child.stdout.strip()


@pytest.mark.parametrize(
    "environment",
    [{"TORCH_MUSA_SIM_TRANSFORMERS": "0"}, {"TORCH_MUSA_SIM_NATIVE": "-fused_moe"}],
    ids=["own switch", "kernel off"],
)
def test_settings_switch_it_off(tmp_path: Path, environment: dict[str, str]) -> None:
    assert run(tmp_path, "import torch" + REPORT, **environment) == "False True"


def test_the_device_does_not_import_transformers(tmp_path: Path) -> None:
    code = "import sys, torch; assert 'transformers' not in sys.modules" + REPORT
    assert run(tmp_path, code) == "True False"


@pytest.mark.parametrize(
    ("autoload", "imports"),
    [
        ("1", "import transformers.modeling_utils"),
        # which imports torch in the middle of the registry's module
        ("1", "import transformers.integrations.moe, transformers.modeling_utils"),
        ("0", "import transformers.modeling_utils, torch_musa_sim"),
    ],
)
def test_transformers_may_be_imported_first(tmp_path: Path, autoload: str, imports: str) -> None:
    assert run(tmp_path, imports + REPORT, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload) == "True False"


def test_the_registry_of_this_process() -> None:
    assert moe.ALL_EXPERTS_FUNCTIONS["grouped_mm"].__name__ == "grouped_mm_experts_forward"
    assert "musa_fused_moe" in moe.ALL_EXPERTS_FUNCTIONS
