"""Context managers of torch.musa that Dynamo takes into a graph as they are."""

import torch

_musa_supported_ctx_manager_classes = dict.fromkeys([torch.musa.amp.autocast])
