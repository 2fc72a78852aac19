"""Copies between the cards of one process under the names of torch.cuda.comm; torch's own functions serve musa, too."""

from torch.nn.parallel.comm import broadcast, broadcast_coalesced, gather, reduce_add, reduce_add_coalesced, scatter

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]
