"""torch.set_num_threads also governs backward, which runs in autograd's own threads on a device."""

import subprocess
import sys

SCRIPT = """
import ctypes, threading, torch

omp = ctypes.CDLL("libgomp.so.1").omp_get_max_threads  # the one torch has loaded
seen = []

class Count(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        result = grad * 2  # an operator on the card, before which the count is brought up to date
        seen.append((omp(), threading.current_thread() is threading.main_thread()))
        return result

def backward():
    x = torch.ones(4, device="musa", requires_grad=True)
    Count.apply(x).sum().backward()

for count in (2, 1, 3, 3, 1):
    torch.set_num_threads(count)
    backward()
assert [n for n, _ in seen] == [2, 1, 3, 3, 1], seen
assert not any(main for _, main in seen), "the backward of a device runs in a thread of its own"
assert torch.get_num_threads() == 1
"""


def test_backward_follows_set_num_threads():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
