"""torch.musa: what the cards' architecture can do."""

import os
import subprocess
import sys

import pytest
import torch


def ask(expression: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", f"import torch; print({expression})"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CAPABILITIES = "torch.musa.is_bf16_supported(), torch.musa.is_bf16_supported(including_emulation=False), \
torch.musa.is_tf32_supported(), torch.musa._get_musa_arch()"


@pytest.mark.parametrize(
    ("card", "answer"),
    [("S80", "(True, False, False, 21)"), ("S4000", "(True, True, True, 22)"), ("S5000", "(True, True, True, 31)")],
)
def test_types_follow_the_architecture(card, answer):
    assert ask(f"({CAPABILITIES})", TORCH_MUSA_SIM_CARD=card) == answer


def test_without_a_card_nothing_is_supported():
    assert ask(f"({CAPABILITIES})", MUSA_VISIBLE_DEVICES="") == "(False, False, False, 0)"


def test_build_tools_can_be_told_another_architecture():
    assert ask("torch.musa._get_musa_arch()", TORCH_MUSA_ARCH="22") == "22"


def test_the_card_s_own_architecture_is_in_the_list():
    major, minor = torch.musa.get_device_capability()
    assert f"mp_{major}{minor}" in torch.musa.get_arch_list()
    assert torch.musa.get_gencode_flags().count("--offload-arch=mp_") == len(torch.musa.get_arch_list())
    assert torch.musa._is_compiled()
    assert torch.musa._device_count_nvml() == torch.musa.device_count()
