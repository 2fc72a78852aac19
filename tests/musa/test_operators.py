"""torch.musa.op_statistics counts what ran on the cards."""

import torch


def by_name() -> dict[str, torch.musa.OperatorStatistics]:
    return {op.name: op for op in torch.musa.op_statistics()}


def test_calls_bytes_and_virtual_time():
    a, b = (torch.ones(1 << 10, device="musa") for _ in range(2))
    torch.musa.reset_op_statistics()
    assert torch.musa.op_statistics() == []
    for _ in range(3):
        torch.add(a, b)
    op = by_name()["aten::add.Tensor"]
    assert (op.calls, op.bytes, op.copies) == (3, 3 * 3 * 4096, 0)
    assert op.device_ns > 0


def test_work_on_the_cpu_is_not_counted():
    torch.musa.reset_op_statistics()
    torch.ones(8) + 1
    assert torch.musa.op_statistics() == []
