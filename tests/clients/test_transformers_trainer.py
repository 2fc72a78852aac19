"""transformers' Trainer."""

import pytest

pytest.importorskip("accelerate", reason="pip install 'torch_musa_sim[hf]'")
pytest.importorskip("transformers", reason="pip install 'torch_musa_sim[hf]'")


def test_trainer_resumes_to_the_same_weights(run_script):
    printed = run_script("trainer.py").splitlines()
    assert printed[-2:] == ["5 5", "equal"]
