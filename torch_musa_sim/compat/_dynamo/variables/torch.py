"""Context managers of torch.musa that Dynamo takes into a graph as they are."""

from torch_musa_sim import musa

_musa_supported_ctx_manager_classes = dict.fromkeys([musa.amp.autocast])
