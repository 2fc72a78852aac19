"""Calls a function when a module has been imported, without importing it."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Teacher = Callable[[ModuleType], None]


class _Teaching(Loader):
    """The module's own loader, followed by the function; it puts the own loader back as soon as the module exists."""

    def __init__(self, loader: Loader, teach: Teacher) -> None:
        self._loader = loader
        self._teach = teach

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._teach(module)


class _Waiting(MetaPathFinder):
    def __init__(self) -> None:
        self.teachers: dict[str, Teacher] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.teachers:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Teaching(spec.loader, self.teachers.pop(name))
                return spec
        return None


_waiting = _Waiting()


def when_imported(name: str, teach: Teacher) -> None:
    """Calls `teach(module)` when the module `name`, which must not be loaded yet, has been."""
    if _waiting not in sys.meta_path:
        sys.meta_path.insert(0, _waiting)
    _waiting.teachers[name] = teach
