"""A CMakeLists.txt for an extension of .mu and .cpp files, built with the MUSA toolkit where there is one."""

from collections.abc import Sequence
from pathlib import Path

_TEMPLATE = """\
cmake_minimum_required(VERSION 3.20)
project({project} LANGUAGES CXX)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
find_package(Python 3 REQUIRED COMPONENTS Interpreter Development.Module)
if(DEFINED ENV{{MUSA_HOME}})
  list(APPEND CMAKE_MODULE_PATH $ENV{{MUSA_HOME}}/cmake)
  find_package(MUSA REQUIRED)
endif()

set(plugin_sources
{sources})
set(plugin_cpp_sources ${{plugin_sources}})
list(FILTER plugin_cpp_sources EXCLUDE REGEX "\\\\.(mu|cu)$")
if(COMMAND musa_add_library)
  musa_add_library({plugin} SHARED ${{plugin_sources}})
else()
  add_library({plugin} SHARED ${{plugin_cpp_sources}})
endif()
target_include_directories({plugin} PRIVATE
{includes})
target_compile_definitions({plugin} PRIVATE {macros})
target_link_libraries({plugin} PRIVATE Python::Module {libraries})
"""


def _as_list(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


class CMakeListsGenerator:
    """Writes a CMakeLists.txt into the current folder.

    sources, include_dirs, link_libraries, define_macros: paths and names, or one of them as a str. project_name and
    plugin_name name the project and its library. customized_cmake_lists: a file whose text is taken instead.
    """

    def __init__(
        self,
        sources: str | Sequence[str],
        include_dirs: str | Sequence[str],
        link_libraries: str | Sequence[str],
        define_macros: str | Sequence[str] | None = None,
        project_name: str = "DEMO_MUSA",
        plugin_name: str = "demo_musa",
        customized_cmake_lists: str | None = None,
    ) -> None:
        self.sources = _as_list(sources)
        if not self.sources and customized_cmake_lists is None:
            raise ValueError("a CMakeLists.txt needs at least one source file")
        self.include_dirs = _as_list(include_dirs)
        self.link_libraries = _as_list(link_libraries)
        self.define_macros = _as_list(define_macros)
        self.project_name = project_name
        self.plugin_name = plugin_name
        self.customized_cmake_lists = customized_cmake_lists

    def fill_in_cmake_lists_template(self) -> str:
        """The text of the file."""
        if self.customized_cmake_lists is not None:
            return Path(self.customized_cmake_lists).read_text()
        return _TEMPLATE.format(
            project=self.project_name,
            plugin=self.plugin_name,
            sources="\n".join(f"  {source}" for source in self.sources),
            includes="\n".join(f"  {folder}" for folder in self.include_dirs),
            macros=" ".join(self.define_macros),
            libraries=" ".join(self.link_libraries),
        )

    def generate(self) -> None:
        """Writes ./CMakeLists.txt; an existing one raises FileExistsError and stays as it is."""
        with open("CMakeLists.txt", "x") as file:
            file.write(self.fill_in_cmake_lists_template())
