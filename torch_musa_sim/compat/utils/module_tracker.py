"""Which module of a model is running: hooks that keep the path from the root to the current one."""

from typing import Any

import torch


class ModuleInfo:
    """One module on the path. father: the module around it, None for the root."""

    def __init__(self, name: str, father: "ModuleInfo | None", is_leaf: bool = False, is_forward: bool = True) -> None:
        self.name = name
        self.father = father
        self.is_leaf = is_leaf
        self.is_forward = is_forward

    def name_with_prefix(self) -> str:
        """The names from below the root to this module, separated by slashes; empty for the root."""
        above = self.father.name_with_prefix() if self.father is not None else ""
        return f"{above}/{self.name}" if above else self.name

    def full_name(self) -> str:
        """As name_with_prefix, with "(forward)" or "(backward)" behind it."""
        return f"{self.name_with_prefix()}({'forward' if self.is_forward else 'backward'})"


root_module_info = ModuleInfo(name="", father=None)
current_module_info = root_module_info


def _enter(module: torch.nn.Module, is_forward: bool) -> None:
    global current_module_info
    leaf = next(module.children(), None) is None
    current_module_info = ModuleInfo(type(module).__name__, current_module_info, leaf, is_forward)


def _leave(module: torch.nn.Module) -> None:
    # An exception may have skipped the end of inner modules, and autograd may end modules out of order.
    global current_module_info
    info: ModuleInfo | None = current_module_info
    while info is not None and info.name != type(module).__name__:
        info = info.father
    if info is not None and info.father is not None:
        current_module_info = info.father


def pre_forward_hook(module: torch.nn.Module, input: Any) -> None:
    """Hook before a module's forward."""
    _enter(module, is_forward=True)


def post_forward_hook(module: torch.nn.Module, input: Any, output: Any) -> None:
    """Hook after a module's forward."""
    _leave(module)


def pre_backward_hook(module: torch.nn.Module, grad_output: Any) -> None:
    """Hook before a module's backward."""
    _enter(module, is_forward=False)


def post_backward_hook(module: torch.nn.Module, grad_input: Any, grad_output: Any) -> None:
    """Hook after a module's backward."""
    _leave(module)


def register_hooks(module: torch.nn.Module) -> None:
    """Puts the four hooks on one module."""
    module.register_forward_pre_hook(pre_forward_hook)
    module.register_forward_hook(post_forward_hook)
    module.register_full_backward_pre_hook(pre_backward_hook)
    module.register_full_backward_hook(post_backward_hook)


def open_module_tracker(module: torch.nn.Module) -> None:
    """Puts the hooks on a module and all modules in it, so that the tools' messages name the path."""
    for inner in module.modules():
        register_hooks(inner)
