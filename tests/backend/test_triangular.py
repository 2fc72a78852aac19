"""tril and triu into strided batches, where torch's CPU kernel writes out of bounds and leaves wrong values."""

import pytest
import torch


@pytest.mark.parametrize("operator", [torch.tril, torch.triu])
@pytest.mark.parametrize("diagonal", [-1, 0, 2])
def test_a_permuted_strided_out_is_written_and_nothing_beside_it(operator, diagonal):
    x = torch.randn(3, 3, 5, 5, generator=torch.Generator().manual_seed(7))
    memory = torch.full((3, 5 * 5 * 3 * 6), -1.0, device="musa")
    out = memory[1].view(5, 5, 3, 6)[..., ::2].permute(3, 2, 1, 0)
    operator(x.to("musa"), diagonal, out=out)
    assert torch.equal(out.cpu(), operator(x, diagonal))
    assert (memory[0] == -1).all()
    assert (memory[2] == -1).all()
    assert (memory[1].view(5, 5, 3, 6)[..., 1::2] == -1).all()


def test_a_wrong_dtype_of_out_is_refused():
    with pytest.raises(RuntimeError, match="dtype"):
        torch.tril(torch.ones(2, 2, device="musa"), out=torch.ones(2, 2, device="musa", dtype=torch.int64))
