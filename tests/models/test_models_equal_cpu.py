"""Stock mixture-of-experts models compute on musa, bit for bit, what they compute on the CPU."""

import pytest
import torch
from tiny_models import MODELS, make_inputs, make_model, to_device

pytestmark = pytest.mark.usefixtures("results_stay_on_the_card")

NEW_TOKENS = 32
STEPS = 3
DEVICES = ("cpu", "musa")

models = pytest.mark.parametrize("name", MODELS)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def assert_bit_equal(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Equality of values, dtype and shape, where NaN equals NaN and 0 doesn't equal -0."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), what
    actual, expected = actual.detach().cpu(), expected.detach()
    assert expected.isfinite().all(), f"{what}: not finite on cpu, which would prove little"
    same = (actual == expected) & (actual.signbit() == expected.signbit())
    if not same.all():
        difference = (actual.double() - expected.double()).abs().max().item()
        raise AssertionError(f"{what}: {(~same).sum()} of {same.numel()} values differ, by at most {difference:.3g}")


def generate(
    name: str, dtype: torch.dtype, experts: str | None, device: str
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """(sequences [2, 12 + NEW_TOKENS], one score tensor [2, vocabulary] a step) of greedy decoding."""
    model = make_model(name, dtype, experts).to(device)
    output = model.generate(
        **to_device(make_inputs(name, dtype), device),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    assert output.sequences.device.type == device
    assert len(output.scores) == NEW_TOKENS
    return output.sequences, list(output.scores)


@models
@dtypes
@pytest.mark.parametrize("experts", ["eager", "batched_mm", "grouped_mm"])
def test_logits(name, dtype, experts):
    def logits(device: str) -> torch.Tensor:
        with torch.no_grad():
            return make_model(name, dtype, experts).to(device)(**to_device(make_inputs(name, dtype), device)).logits

    expected, actual = (logits(device) for device in DEVICES)
    assert actual.device == torch.device("musa", 0)
    assert_bit_equal(actual, expected, "logits")


@models
@dtypes
@pytest.mark.parametrize("experts", ["eager", pytest.param("batched_mm", marks=pytest.mark.full)])
def test_scores_of_greedy_decoding(name, dtype, experts):
    (expected, expected_scores), (actual, actual_scores) = (generate(name, dtype, experts, d) for d in DEVICES)
    for step, (score, expected_score) in enumerate(zip(actual_scores, expected_scores, strict=True)):
        assert_bit_equal(score, expected_score, f"scores of step {step}")
    assert actual.tolist() == expected.tolist()


@models
def test_stock_experts_choose_the_same_tokens(name):
    """Without a stated implementation transformers decodes with other experts code on musa than on the CPU."""
    (expected, expected_scores), (actual, actual_scores) = (generate(name, torch.float32, None, d) for d in DEVICES)
    assert actual.tolist() == expected.tolist()
    for score, expected_score in zip(actual_scores, expected_scores, strict=True):
        torch.testing.assert_close(score.cpu(), expected_score, rtol=1e-5, atol=1e-5)


@models
@dtypes
def test_adamw_steps(name, dtype):
    def train(device: str) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        model = make_model(name, dtype, "eager").to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        inputs = to_device(make_inputs(name, dtype), device)
        figures = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(**inputs, labels=inputs["input_ids"]).loss
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            figures += [loss.detach(), norm]
        return figures, model.state_dict()

    (expected, expected_weights), (actual, actual_weights) = (train(device) for device in DEVICES)
    assert expected[-2] < expected[0], "the loss doesn't fall, so nothing was trained"
    for index, (figure, expected_figure) in enumerate(zip(actual, expected, strict=True)):
        assert_bit_equal(figure, expected_figure, f"{('loss', 'gradient norm')[index % 2]} of step {index // 2}")
    assert list(actual_weights) == list(expected_weights)
    for weight in expected_weights:
        assert_bit_equal(actual_weights[weight], expected_weights[weight], weight)
