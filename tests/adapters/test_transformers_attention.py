"""attn_implementation="musa" of transformers: sinks, soft-cap and windows through torch.ops.musa.attention."""

from collections.abc import Iterator

import pytest
import torch

transformers = pytest.importorskip("transformers")

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": 0,
    "sliding_window": 4,
}
CONFIGS = {
    "gpt_oss": lambda: transformers.GptOssConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2),
    "gemma2": lambda: transformers.Gemma2Config(**SHAPE, attn_logit_softcapping=2.0, query_pre_attn_scalar=8),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **SHAPE, query_pre_attn_scalar=8, layer_types=["sliding_attention", "full_attention"]
    ),
    "mistral": lambda: transformers.MistralConfig(**SHAPE),
    "llama": lambda: transformers.LlamaConfig(**{k: v for k, v in SHAPE.items() if k != "sliding_window"}),
}
PROMPT = torch.arange(1, 19).reshape(2, 9)
PADDING = torch.ones(2, 9, dtype=torch.long)
PADDING[0, :3] = 0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(verbosity)


def make_model(name: str, implementation: str) -> torch.nn.Module:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), attn_implementation=implementation)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("sinks"):
                parameter.copy_(torch.linspace(-1, 2, parameter.numel()))
    return model.eval()


def calls() -> int:
    return sum(op.calls for op in torch.musa.op_statistics() if op.name == "musa::attention")


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_those_of_eager_attention_on_the_cpu(name: str, padded: bool) -> None:
    mask = PADDING if padded else torch.ones_like(PADDING)
    with torch.no_grad():
        want = make_model(name, "eager")(PROMPT, attention_mask=mask).logits
        model = make_model(name, "musa").to("musa")
        assert model.config._attn_implementation == "musa"
        torch.musa.reset_op_statistics()
        have = model(PROMPT.to("musa"), attention_mask=mask.to("musa")).logits.cpu()
    seen = mask.bool()
    torch.testing.assert_close(have[seen], want[seen], rtol=1e-3, atol=1e-3)
    # A window with padding is a dense mask, which sdpa takes.
    always = name in ("gpt_oss", "gemma2")
    assert calls() == (2 if always else 0 if padded or name == "llama" else 1 if name == "gemma3" else 2)


@pytest.mark.parametrize("name", CONFIGS)
def test_unmodified_generate_chooses_the_same_tokens(name: str) -> None:
    options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": PADDING}
    want = make_model(name, "eager").generate(PROMPT, **options)
    options["attention_mask"] = PADDING.to("musa")
    have = make_model(name, "musa").to("musa").generate(PROMPT.to("musa"), **options)
    assert have.tolist() == want.tolist()


@pytest.mark.parametrize("name", ["gpt_oss", "mistral"])
def test_a_static_cache_chooses_the_same_tokens(name: str) -> None:
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static", "disable_compile": True}
    want = make_model(name, "eager").generate(PROMPT, max_new_tokens=6, do_sample=False)
    have = make_model(name, "musa").to("musa").generate(PROMPT.to("musa"), **options)
    assert have.tolist() == want.tolist()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_prompt_in_two_parts_gives_the_logits_of_one(name: str) -> None:
    with torch.no_grad():
        want = make_model(name, "eager")(PROMPT).logits[:, 6:]
        model = make_model(name, "musa").to("musa")
        cache = model(PROMPT[:, :6].to("musa"), use_cache=True).past_key_values
        have = model(PROMPT[:, 6:].to("musa"), past_key_values=cache).logits
    torch.testing.assert_close(have.cpu(), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["gpt_oss", "gemma2", "mistral"])
def test_gradients_equal_those_of_eager_attention_on_the_cpu(name: str) -> None:
    model = make_model(name, "eager")
    model(PROMPT).logits.square().mean().backward()
    want = {key: parameter.grad for key, parameter in model.named_parameters()}
    model = make_model(name, "musa").to("musa")
    model(PROMPT.to("musa")).logits.square().mean().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.cpu(), want[key], rtol=1e-2, atol=2e-3, msg=key)


def test_no_dense_mask_is_built_where_the_window_says_it_all() -> None:
    from transformers.masking_utils import create_sliding_window_causal_mask

    config = make_model("mistral", "musa").config
    x = torch.zeros(2, 9, 32, device="musa")
    assert create_sliding_window_causal_mask(config, x, None, None) is None
    assert create_sliding_window_causal_mask(config, x, torch.ones_like(PADDING).to("musa"), None) is None
    mask = create_sliding_window_causal_mask(config, x, PADDING.to("musa"), None)
    assert (mask.dtype, mask.shape) == (torch.bool, (2, 1, 9, 9))


def test_on_the_cpu_the_same_name_computes_the_same() -> None:
    for name in ("gpt_oss", "mistral"):
        with torch.no_grad():
            want = make_model(name, "eager")(PROMPT).logits
            have = make_model(name, "musa")(PROMPT).logits
        torch.testing.assert_close(have, want, rtol=1e-3, atol=1e-3)


def test_dropout_with_a_window_is_refused() -> None:
    model = make_model("mistral", "musa").to("musa").train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1
    with pytest.raises(ValueError, match="no dropout"):
        model(PROMPT.to("musa"))
