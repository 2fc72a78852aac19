"""Torch's own modules for CUDA, loaded once more as modules for musa.

Much of the compiler's code names CUDA and is not about CUDA: what it calls exists in torch.musa under the same names.
Such a module is read from the torch that is installed, its names are changed, and it runs as a module of ours. Nothing
of it is kept anywhere.
"""

import importlib.util
import linecache
import re
from collections.abc import Callable, Mapping
from typing import Any

_DOTTED = re.compile(r"""(["']?)([\w.]*(?:cuda|CUDA|Cuda|cublas|Cublas)\w*)(["']?)""")
_RELATIVE = re.compile(r"^(\s*from )(\.+)([\w.]*)( import)", re.MULTILINE)
# Torch's options, counters, and modules that know no device keep their names.
_KEPT = re.compile(r"(.*\bconfig\.|torch\._higher_order_ops\.|torch\.compiler\.).*")


def load(
    into: dict[str, Any],
    source: str,
    replaced: Mapping[str, str] | None = None,
    last: Callable[[str], str] = str,
) -> None:
    """Runs torch's module `source` in the namespace `into`, which has `__name__` and `__file__` set.

    replaced: pieces of the text after the change of names, and what stands there instead; raises ImportError for one
    that the installed torch doesn't have. last: what is done to the text in the end.
    """
    spec = importlib.util.find_spec(source)
    text = spec.loader.get_source(source) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
    if text is None:
        raise ImportError(f"{into['__name__']} is made of {source}, whose source isn't installed", name=source)
    text = renamed(text, source)
    for old, new in (replaced or {}).items():
        if old not in text:
            raise ImportError(
                f"{into['__name__']} is made of {source}, which has no {old!r} in this torch", name=source
            )
        text = text.replace(old, new)
    text = last(text)
    path = f"<{source} for musa>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)  # for tracebacks and inspect
    exec(compile(text, path, "exec"), into)


def renamed(text: str, source: str) -> str:
    """`text` of the module `source` with musa's names for CUDA's and absolute imports."""
    return _DOTTED.sub(_rename, _RELATIVE.sub(lambda found: _absolute(found, source), text))


def _absolute(found: re.Match[str], source: str) -> str:
    start, dots, rest, end = found.groups()
    package = source.rsplit(".", len(dots))[0]
    return f"{start}{package}{'.' + rest if rest else ''}{end}"


def _rename(found: re.Match[str]) -> str:
    before, name, after = found.groups()
    is_key = before and before == after and name.lower() != "cuda"
    if is_key or _KEPT.fullmatch(name):
        return found.group()
    name = re.sub(r"torch\._C\._cuda_", "tree_memory._", name)
    name = name.replace("torch._inductor.cudagraph", "torch_musa._inductor.cudagraph")
    for old, new in (("cuda", "musa"), ("CUDA", "MUSA"), ("Cuda", "Musa"), ("cublas", "mublas"), ("Cublas", "Mublas")):
        name = name.replace(old, new)
    return f"{before}{name}{after}"
