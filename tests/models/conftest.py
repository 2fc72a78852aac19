"""These tests hold bit for bit with native kernels off: `make test` runs them with TORCH_MUSA_SIM_NATIVE=0."""

import pytest
import torch

pytest.importorskip("transformers", reason="pip install 'torch_musa_sim[hf]'")

import transformers


@pytest.fixture(autouse=True)
def quiet_and_single_threaded():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def results_stay_on_the_card():
    """The test runs operators on musa, and none of their results comes from host memory."""
    torch.musa.reset_op_statistics()
    yield
    statistics = torch.musa.op_statistics()
    assert sum(op.calls for op in statistics) > 0, "nothing ran on musa"
    copied = {op.name: op.copies for op in statistics if op.copies}
    assert not copied, f"results copied from host memory to the card: {copied}"
