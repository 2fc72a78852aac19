"""torch.ops.musa.penalize_logits."""

import pytest
import torch


def plain(
    logits: list[float], tokens: list[int], prompt: int, repetition: float, frequency: float, presence: float
) -> list[float]:
    out = []
    for id, value in enumerate(logits):
        if id in tokens:
            value = value / repetition if value > 0 else value * repetition
            count = tokens[prompt:].count(id)
            value -= frequency * count + presence * (count > 0)
        out.append(value)
    return out


@pytest.mark.parametrize("device", ["musa", "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_penalties_and_bias(dtype: torch.dtype, device: str) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(3, 20, generator=generator).to(dtype)
    tokens = torch.randint(-2, 24, (3, 15), generator=generator)
    prompts = torch.tensor([0, 6, 15])
    repetition = torch.tensor([1.3, 1.0, 0.7])
    frequency = torch.tensor([0.1, 0.5, 0.0])
    presence = torch.tensor([0.4, 0.0, 0.9])
    bias_ids = torch.tensor([[1, 1], [19, -1], [20, 3]])
    bias = torch.tensor([[2.0, 3.0], [-100.0, 7.0], [5.0, torch.inf]])
    expected = torch.tensor(
        [
            plain(row, tokens[i].tolist(), int(prompts[i]), *(float(p[i]) for p in (repetition, frequency, presence)))
            for i, row in enumerate(logits.tolist())
        ]
    )
    got = torch.ops.musa.penalize_logits(
        logits.to(device),
        tokens.to(device),
        prompt_lengths=prompts.to(device),
        repetition=repetition.to(device),
        frequency=frequency.to(device),
        presence=presence.to(device),
    )
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.cpu(), expected)
    biased = torch.ops.musa.penalize_logits(
        logits.to(device), tokens.to(device), bias_ids=bias_ids.to(device), bias=bias.to(device)
    )
    expected = logits.float()
    expected[0, 1] += 5
    expected[1, 19] -= 100
    expected[2, 3] = torch.inf
    torch.testing.assert_close(biased.cpu(), expected)


def test_without_prompt_lengths_all_is_answer_and_nothing_is_changed_in_place() -> None:
    logits = torch.ones(1, 4, device="musa")
    tokens = torch.tensor([[2, 2, 0]], device="musa")
    got = torch.ops.musa.penalize_logits(logits, tokens, frequency=torch.tensor([0.5], device="musa"))
    assert got.tolist() == [[0.5, 1, 0, 1]]
    assert logits.eq(1).all()
    assert torch.ops.musa.penalize_logits(logits, tokens[:, :0]).equal(logits)
    assert torch.ops.musa.penalize_logits(logits[:0], tokens[:0]).shape == (0, 4)
    assert torch.ops.musa.penalize_logits(logits.to("meta"), tokens.to("meta")).shape == (1, 4)


def test_a_row_does_not_depend_on_its_batch() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(5, 300, generator=generator).to("musa")
    tokens = torch.randint(300, (5, 40), generator=generator).to("musa")
    options = {name: torch.rand(5, generator=generator).to("musa") + 0.5 for name in ("repetition", "frequency")}
    options["prompt_lengths"] = torch.tensor([0, 40, 7, 20, 39], device="musa")
    options["bias_ids"] = tokens[:, :4]
    options["bias"] = torch.randn(5, 4, generator=generator).to("musa")
    every = torch.ops.musa.penalize_logits(logits, tokens, **options)
    for row in range(5):
        part = {name: value[row : row + 1] for name, value in options.items()}
        alone = torch.ops.musa.penalize_logits(logits[row : row + 1], tokens[row : row + 1], **part)
        assert torch.equal(alone[0], every[row])


@pytest.mark.parametrize("device", ["musa", "cpu", "meta"])
def test_what_is_refused(device: str) -> None:
    logits = torch.ones(2, 4, device=device)
    tokens = torch.ones(2, 3, dtype=torch.long, device=device)
    cases = [
        ((logits, tokens[:1]), {}, r"tokens \[rows, n\]"),
        ((logits, logits), {}, "integer tokens"),
        ((logits, tokens), {"repetition": tokens[:, 0]}, "repetition has one floating point number"),
        ((logits, tokens), {"prompt_lengths": logits[:, 0]}, "prompt_lengths has one integer"),
        ((logits, tokens), {"bias_ids": tokens}, "come together"),
    ]
    for arguments, options, text in cases:
        with pytest.raises(RuntimeError, match=text):
            torch.ops.musa.penalize_logits(*arguments, **options)
