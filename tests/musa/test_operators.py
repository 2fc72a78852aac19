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


def test_bytes_are_those_that_a_kernel_reads_and_writes():
    x = torch.ones(100, device="musa")  # 400 bytes
    torch.musa.reset_op_statistics()
    x.fill_(1)
    x.zero_()
    x.add_(1)
    torch.arange(50, device="musa")  # resizes a result that begins empty
    moved = {op.name: op.bytes for op in torch.musa.op_statistics()}
    assert moved["aten::fill_.Scalar"] == moved["aten::zero_"] == 400
    assert moved["aten::add_.Tensor"] == 800
    assert moved["aten::arange.start_out"] == 400
