"""`musa-sim ops --explain`: which native kernel a call takes, and why."""

import re

import pytest


def taken(text: str) -> str:
    return re.findall(r"^taken: (.*)$", text, re.MULTILINE)[0]


def test_a_product_is_explained_with_its_key_its_variants_and_the_choice(musa_sim):
    text = musa_sim("ops", "--explain", "mm 16x4096x2048 bfloat16").stdout
    lines = text.splitlines()
    assert lines[0] == "mm of a [16, 2048] and b [2048, 4096], bfloat16"
    assert lines[1].startswith("key: mm 16x4096x2048 BFloat16 a=rows b=rows c=rows ")
    assert re.search(r"^  dot +- +-  not: b is not stored by columns$", text, re.MULTILINE)
    assert re.search(r"^\* packed +[\d.]+ ms +-$", text, re.MULTILINE)
    assert taken(text) == "packed (model)"


def test_a_linear_layer_reads_its_weight_by_columns_and_variants_can_be_measured(musa_sim):
    text = musa_sim("ops", "--explain", "linear 1x512x256 float32 measure").stdout
    assert taken(text) == "dot (model)"
    assert len(re.findall(r"[\d.]+ (?:us|ms|ns)", text)) == 9  # four estimates, five times


def test_attention_and_what_forces_a_choice(musa_sim):
    question = "scaled_dot_product_attention 1x8x1x64 float16 keys=4096 kv_heads=2"
    assert taken(musa_sim("ops", "--explain", question).stdout) == "streams (model)"
    text = musa_sim("ops", "--explain", question, TORCH_MUSA_SIM_NATIVE="0").stdout
    assert taken(text) == "reference (forced by TORCH_MUSA_SIM_NATIVE)"
    text = musa_sim("ops", "--explain", "bmm 2x8x8x8 float32", TORCH_MUSA_SIM_NATIVE="-bmm").stdout
    assert taken(text) == "reference (forced by TORCH_MUSA_SIM_NATIVE)"


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("mm", "accepted: mm MxNxK DTYPE"),
        ("conv2d 1x2x3 float32", "knows no choice for 'conv2d'"),
        ("mm 3x3 float32", "are MxNxK, as 16x4096x4096, got '3x3'"),
        ("mm 3xax3 float32", "got '3xax3'"),
        ("mm 3x0x3 float32", "sizes are 1 .. "),
        ("mm 3x3x3 int8", "float32, bfloat16, float16, got 'int8'"),
        ("mm 3x3x3 float32 c=rows", "has no option 'c=rows'"),
        ("mm 3x3x3 float32 b=diagonal", "'b=diagonal' should be b=rows|columns"),
        ("mm 3x3x3 float32 measure=1", "'measure=1' should be measure"),
        ("mm 99999x99999x99999 float32 measure", "measure takes up to 2^30 numbers"),
        ("scaled_dot_product_attention 1x8x1x64 float32 kv_heads=3", "8 heads are not a multiple of kv_heads=3"),
    ],
)
def test_a_wrong_question_is_one_clear_line(capsys, question, part):
    from torch_musa_sim import cli

    assert cli.main(["ops", "--explain", question]) == 2
    error = capsys.readouterr().err
    assert part in error
    assert error.startswith("musa-sim: ")
    assert error.count("\n") == 1
