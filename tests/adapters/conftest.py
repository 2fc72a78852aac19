import pytest

pytest.importorskip("transformers", reason="pip install 'torch_musa_sim[hf]'")
