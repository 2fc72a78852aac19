"""Inductor's own files of this run go under pytest's temporary folder, and one process compiles them."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def fresh_inductor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        from torch._inductor import config

        # No pool of compile workers, each of which would import torch, and no trial builds for each instruction set.
        with config.patch({"compile_threads": 1, "cpp.vec_isa_ok": True}):
            yield


@pytest.fixture(autouse=True)
def forget_compiled_code() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.musa.reset_op_statistics()
    yield
    torch._dynamo.reset()
