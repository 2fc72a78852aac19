"""Names that stand for nothing here do what their docstrings say."""

import pytest
import torch


def test_library_handles_belong_to_card_and_stream():
    handles = [
        torch.musa.current_blas_handle(),
        torch.musa.current_blaslt_handle(),
        torch.musa.current_solver_handle(),
    ]
    assert torch.musa.current_blas_handle() == handles[0]
    with torch.musa.device(1):
        handles.append(torch.musa.current_blas_handle())
    with torch.musa.stream(torch.musa.Stream()):
        handles.append(torch.musa.current_blas_handle())
    assert len(set(handles)) == 5


def test_shared_memory_of_host_and_card_is_warned_about(monkeypatch):
    from torch_musa_sim.musa import no_meaning

    class Settings:
        value = "max_split_size_mb:64"

        def _settings(self) -> list[dict[str, str]]:
            return [{"name": "PYTORCH_MUSA_ALLOC_CONF", "value": self.value}]

    settings = Settings()
    monkeypatch.setattr(no_meaning, "_C", settings)
    torch.musa.parseEnvForUMM()
    settings.value = "max_split_size_mb:64, cpu:unified"
    with pytest.warns(UserWarning, match="share no memory with the host"):
        torch.musa.parseEnvForUMM()


def test_graphs_need_no_second_instance_for_profiling():
    assert torch.musa.update_musa_graph_with_profile() is None
