"""The backend "musagraphs" and its checks: torch's "cudagraphs", on musa."""

from typing import Any

from ... import _renamed


def __getattr__(name: str) -> Any:  # for type checkers: the names come from torch's module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_renamed.load(
    globals(),
    "torch._dynamo.backends.cudagraphs",
    {
        "get_first_incompatible_musagraph_node,": (
            "get_first_incompatible_cudagraph_node as get_first_incompatible_musagraph_node,"
        ),
        "torch_musa._inductor.musagraph_trees.get_manager": "get_manager",
        "    from torch_musa._inductor.musagraph_trees import musagraphify_impl\n": (
            "    from torch_musa._inductor.musagraph_trees import get_manager, musagraphify_impl\n"
        ),
        'compiler_name = "cudagraphs"': 'compiler_name = "musagraphs"',
        'register_backend(name="cudagraphs", compiler_fn=MusagraphsBackend())\n': "",
    },
)
