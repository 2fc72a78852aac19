"""Functions of torch.musa that Dynamo puts into a graph instead of looking inside."""

import importlib
from typing import Any

from torch._dynamo import trace_rules
from torch._dynamo.variables import TorchInGraphFunctionVariable

from torch_musa_sim import musa

_PREFIX = "torch.cuda."


def _load_obj_from_str(fully_qualified_name: str) -> Any:
    """What a dotted name stands for; the last part is looked up in the module before it."""
    module, name = fully_qualified_name.rsplit(".", maxsplit=1)
    return getattr(importlib.import_module(module), name)


# The functions that torch lists for torch.cuda itself, as far as torch.musa has them.
_torch_musa_non_c_binding_in_graph_functions = dict.fromkeys(
    [
        f"torch.musa.{name.removeprefix(_PREFIX)}"
        for name in trace_rules.torch_non_c_binding_in_graph_functions
        if name.startswith(_PREFIX)
        and name.count(".") == 2
        and callable(getattr(musa, name.removeprefix(_PREFIX), None))
    ],
    TorchInGraphFunctionVariable,
)


def _apply_dynamo_trace_rules_patches() -> None:
    """Adds the functions to Dynamo's rules, once, and makes Dynamo read its rules again."""
    rules: Any = trace_rules.torch_name_rule_map
    if not any(known is _torch_musa_non_c_binding_in_graph_functions for known in rules):
        rules.append(_torch_musa_non_c_binding_in_graph_functions)
        trace_rules.get_torch_obj_rule_map.cache_clear()
