"""Attention of tensors that are sharded over cards, by heads or by tokens.

The fake process group of PyTorch sends nothing: what is compared needs no word from another rank, as a shard of heads
and, of a causal sequence, the first tokens.
"""

import pytest

START = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("cpu:fake,musa:fake", store=FakeStore(), rank=RANK, world_size=WORLD)
mesh = init_device_mesh("musa", (WORLD,))
generator = torch.Generator().manual_seed(0)
q, k, v, grad = (torch.randn(1, 4, 64, 8, generator=generator) for _ in range(4))
leaves = [t.clone().requires_grad_() for t in (q, k, v)]
out = F.scaled_dot_product_attention(*leaves, is_causal=True)
wanted = [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def check(have, want):
    torch.testing.assert_close(have.cpu(), want, rtol=1e-4, atol=1e-5)
"""

HEADS = """
from torch.distributed.tensor import DTensor, Shard

def shard(t):
    return t.chunk(WORLD, 1)[RANK].contiguous()

inputs = [DTensor.from_local(shard(t).to("musa"), mesh, [Shard(1)]).requires_grad_() for t in (q, k, v)]
out = F.scaled_dot_product_attention(*inputs, is_causal=True)
assert out.shape == q.shape
assert out.placements == (Shard(1),)
gradients = torch.autograd.grad(out, inputs, DTensor.from_local(shard(grad).to("musa"), mesh, [Shard(1)]))
for have, want in zip([out.detach(), *gradients], wanted, strict=True):
    check(have.to_local(), shard(want))
"""

TOKENS = """
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options

_cp_options.enable_load_balance = False
inputs = [t.to("musa") for t in (q, k, v)]
with context_parallel(mesh, buffers=inputs, buffer_seq_dims=[2, 2, 2]):
    leaves = [t.clone().requires_grad_() for t in inputs]
    assert leaves[0].shape[2] == 64 // WORLD
    torch.musa.reset_op_statistics()
    out = F.scaled_dot_product_attention(*leaves, is_causal=True)
    calls = {op.name: op.calls for op in torch.musa.op_statistics()}
    assert calls["aten::_scaled_dot_product_flash_attention"] == 1
    gradients = torch.autograd.grad(out, leaves, grad[:, :, : 64 // WORLD].to("musa"))
have, want = [out.detach(), *gradients], wanted
for a, b in zip(have[: 4 if WORLD == 1 else 2], want, strict=False):  # gradients of keys come from all ranks
    check(a, b[:, :, : 64 // WORLD])
"""


def test_heads_that_are_sharded_over_cards_attend_on_their_own(run_script) -> None:
    run_script("RANK, WORLD = 1, 2\n" + START + HEADS)


@pytest.mark.parametrize("world", [1, 2])
def test_context_parallelism_takes_the_flash_operator(run_script, world: int) -> None:
    run_script(f"RANK, WORLD = 0, {world}\n" + START + TOKENS)
