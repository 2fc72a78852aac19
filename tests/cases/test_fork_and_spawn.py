"""A forked child that touches the device gets one clear error at once; a spawned child works."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

TIMEOUT = 120


def run(script: str) -> str:
    """Output of the script in a fresh interpreter, which must end cleanly."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


IN_A_FORKED_CHILD = """
    import os, sys, torch
    x = torch.ones(4, device="musa")
    pinned = torch.ones(2).pin_memory()
    y = x + x
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            ACTION
            print("no error")
        except RuntimeError as error:
            print(error)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert (x + x).sum().item() == 8 and not torch.musa._is_in_bad_fork()
"""

TOUCHES = {
    "factory": 'torch.zeros(2, device="musa")',
    "inherited_operand": "x + 1",
    "inherited_in_place": "x.add_(1)",
    "inherited_read": "x.cpu()",
    "inherited_item": "x[0].item()",
    "inherited_repr": "repr(x)",
    "copy_in": "x.copy_(torch.ones(4))",
    "move": 'torch.ones(2).to("musa")',
    "synchronize": "torch.musa.synchronize()",
    "stream": "torch.musa.Stream()",
    "event": "torch.musa.Event().record()",
    "random": 'torch.rand(2, device="musa")',
    "set_device": "torch.musa.set_device(1)",
    "empty_cache": 'torch.musa.empty_cache(); torch.empty(1, device="musa")',
}


@pytest.mark.parametrize("name", TOUCHES)
def test_a_forked_child_is_told_to_spawn(name):
    said = run(textwrap.dedent(IN_A_FORKED_CHILD).replace("ACTION", TOUCHES[name]))
    assert "Cannot re-initialize MUSA in forked subprocess" in said
    assert "spawn" in said


def test_a_forked_child_may_ask():
    said = run(textwrap.dedent(IN_A_FORKED_CHILD).replace(
        "ACTION", "print(torch.accelerator.is_available(), torch.musa.is_available(), torch.musa._is_in_bad_fork())"
    ))  # fmt: skip
    assert said.splitlines()[0].endswith("True")


def test_a_forked_child_computes_on_the_cpu():
    said = run(textwrap.dedent(IN_A_FORKED_CHILD).replace("ACTION", "print((torch.ones(3) * 2).sum().item())"))
    assert said.splitlines() == ["6.0", "no error"]


def test_a_forked_child_drops_inherited_tensors():
    said = run(textwrap.dedent(IN_A_FORKED_CHILD).replace("ACTION", "del x, y; torch.manual_seed(3)"))
    assert said == "no error"


def test_a_child_of_an_unused_parent_works():
    said = run("""
        import os, torch
        torch.musa.is_available()
        pid = os.fork()
        if pid == 0:
            print((torch.ones(3, device="musa") * 2).sum().item(), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print((torch.ones(3, device="musa") * 3).sum().item())
    """)
    assert said.splitlines() == ["6.0", "9.0"]


def test_forked_loader_workers_after_use_of_the_device():
    torch.ones(1, device="musa")
    loader = DataLoader(TensorDataset(torch.zeros(10, 2)), batch_size=3, num_workers=2, multiprocessing_context="fork")
    assert sum(batch[0].shape[0] for batch in loader) == 10


def test_spawned_children_work(tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        import torch.multiprocessing as mp

        def child(rank, queue):
            queue.put((rank, (torch.ones(3, device=f"musa:{rank}") * (rank + 2)).sum().item()))

        if __name__ == "__main__":
            torch.ones(1, device="musa")
            context = mp.get_context("spawn")
            queue = context.Queue()
            children = [context.Process(target=child, args=(rank, queue)) for rank in range(2)]
            for process in children:
                process.start()
            print(sorted(queue.get(timeout=100) for _ in children))
            for process in children:
                process.join()
                assert process.exitcode == 0
    """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=TIMEOUT, env=os.environ)
    assert done.stdout.strip() == "[(0, 6.0), (1, 9.0)]", done.stderr
    assert done.returncode == 0


def test_notebook_launcher_after_use_of_the_device():
    """It forks; the children must say why they can't go on, and the launcher must end."""
    pytest.importorskip("accelerate")
    script = """
        import torch
        from accelerate import notebook_launcher

        torch.ones(1, device="musa")
        notebook_launcher(lambda: torch.ones(1, device="musa"), num_processes=2)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode != 0
    assert "Cannot re-initialize MUSA in forked subprocess" in done.stderr
