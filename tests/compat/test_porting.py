"""Conversion of CUDA sources and scripts."""

import argparse
import types
from pathlib import Path

import pytest
from torch_musa.utils import cmake_lists_generator, ext_loader, logger_util, musify_text
from torch_musa.utils.simple_porting import SimplePorting
from torch_musa.utils.simple_porting_via_musify import SimplePortingViaMusify

KERNEL = """\
#include <cuda_runtime.h>
#include "cuda_utils.cuh"
// barracuda stays a fish
__global__ void scale(float* x) { x[threadIdx.x] *= 2; }
void run(float* x) {
  cudaMalloc(&x, 4);  // MUSIFY_EXCL_LINE
  cudaMemcpy(x, x, 4, cudaMemcpyDefault);
}
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "csrc_cuda"
    (folder / "cuda_ops").mkdir(parents=True)
    (folder / "npu").mkdir()
    (folder / "cuda_ops" / "scale.cu").write_text(KERNEL)
    (folder / "cuda_ops" / "cuda_utils.cuh").write_text("#define CUDA_CHECK(x) x\n")
    (folder / "npu" / "other.cpp").write_text("cuda")
    (folder / "weights.bin").write_bytes(b"cuda\xff")
    return folder


def test_a_folder_is_copied_with_new_names(sources):
    SimplePorting(str(sources), ignore_dir_paths=["npu"], mapping_rule={"scale": "scaled"}).run()
    target = sources.with_name("csrc_cuda_musa")
    files = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    assert files == ["musa_ops/musa_utils.muh", "musa_ops/scale.mu", "weights.bin"]
    text = (target / "musa_ops" / "scale.mu").read_text()
    assert "#include <musa_runtime.h>" in text
    assert '#include "musa_utils.muh"' in text
    assert "void scaled(float* x)" in text
    assert "musaMemcpy(x, x, 4, musaMemcpyDefault)" in text
    assert (target / "weights.bin").read_bytes() == b"cuda\xff"
    assert (sources / "cuda_ops" / "scale.cu").read_text() == KERNEL


def test_only_the_given_rules_without_the_default_ones(sources):
    SimplePorting(str(sources), mapping_rule={"float": "half"}, drop_default_mapping=True).run()
    text = (sources.with_name("csrc_cuda_musa") / "musa_ops" / "scale.mu").read_text()
    assert text == KERNEL.replace("float", "half").replace('.cuh"', '.muh"')


def test_a_folder_is_converted_where_it_stands(sources):
    SimplePortingViaMusify(str(sources), ignore_patterns=["npu/*"], extra_mapping={"scale": "scaled"}).run()
    text = (sources / "cuda_ops" / "scale.mu").read_text()
    assert "musaMemcpy" in text
    assert "cudaMalloc(&x, 4);  // MUSIFY_EXCL_LINE" in text
    assert "barracuda stays a fish" in text
    assert "void scaled(" in text
    assert (sources / "npu" / "other.cpp").read_text() == "cuda"
    SimplePortingViaMusify(str(sources), ignore_patterns=[], direction="m2c").run()
    assert "cudaMemcpy" in (sources / "cuda_ops" / "scale.cu").read_text()


def test_a_folder_that_is_not_there(tmp_path):
    for converter in (lambda path: SimplePorting(path), lambda path: SimplePortingViaMusify(path, [])):
        with pytest.raises(FileNotFoundError, match="is not a folder"):
            converter(str(tmp_path / "nothing"))


def test_excluded_parts_stay(tmp_path):
    file = tmp_path / "a.cpp"
    file.write_text("cudaA\n// MUSIFY_EXCL_START\ncudaB\n// MUSIFY_EXCL_STOP\ncudaC\n")
    table = tmp_path / "names.json"
    table.write_text('{"cuda": "musa"}')
    args = types.SimpleNamespace(mapping=[str(table)], extra_mapping=None, direction="c2m", output_method="create")
    musify_text.init_ac_automaton(args)
    musify_text.transform_file(str(file), args)
    expected = "musaA\n// MUSIFY_EXCL_START\ncudaB\n// MUSIFY_EXCL_STOP\nmusaC\n"
    assert Path(f"{file}.mt").read_text() == expected
    args.output_method = "elsewhere"
    with pytest.raises(ValueError, match="output_method is"):
        musify_text.transform_file(str(file), args)


def test_the_longest_keyword_wins():
    names = musify_text.KeywordMap(case_insensitive=True)
    names.add("cu", 1)
    names.add("CUDA", 2)
    with pytest.raises(RuntimeError, match="finalize"):
        names.search("cuda")
    names.finalize()
    assert list(names.search_longest("cuda cu")) == [(("cuda", 0), 2), (("cu", 5), 1)]
    assert names.search("x") is None
    assert not musify_text.is_word_boundary("barracuda", 5, 9)
    assert musify_text.is_word_boundary("cudaMalloc", 0, 4)


SCRIPT = '''\
"""Trains."""
from __future__ import annotations

import torch.cuda
from torch.utils.cpp_extension import load  # nvcc
device = f"cuda:{0}"  # the CUDA device
torch.distributed.init_process_group("nccl")
x = torch.ones(2).cuda()
'''


def test_a_script_is_converted(tmp_path):
    pytest.importorskip("libcst", reason="pip install 'torch_musa_sim[port]'")
    from torch_musa.utils import musa_converter

    script, other = tmp_path / "train.py", tmp_path / "kept.py"
    script.write_text(SCRIPT)
    other.write_text("cuda = 1\n")
    args = argparse.Namespace(root_path=str(tmp_path), launch_path=str(script), excluded_path=[str(other)])
    converter = musa_converter.AdvancedMUSAConverter(args)
    converter.run()
    assert (
        script.read_text()
        == '''\
"""Trains."""
from __future__ import annotations

import torch_musa
from torch_musa.utils.musa_extension import load  # mcc
device = f"musa:{0}"  # the MUSA device
torch.distributed.init_process_group("mccl")
x = torch.ones(2).musa()
'''
    )
    assert other.read_text() == "cuda = 1\n"
    other.write_text("torch.ops.aten.add(1, 2); torch.ops.nowhere.thing()")
    assert converter.collect_unsupported_torch_ops() == {}
    args.excluded_path = []
    found = musa_converter.AdvancedMUSAConverter(args).collect_unsupported_torch_ops()
    assert found == {str(other): ["nowhere.thing"]}
    other.write_text('"""Starts."""\nimport train\n')
    converter.add_torch_musa_into_launch_script(str(other))
    converter.add_torch_musa_into_launch_script(str(other))
    assert other.read_text() == '"""Starts."""\nimport torch_musa\nimport train\n'
    other.write_text("def (")
    with pytest.raises(SyntaxError, match=r"kept\.py isn't valid Python"):
        converter.convert_file(str(other))
    assert other.read_text() == "def ("


def test_cmake_lists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = cmake_lists_generator.CMakeListsGenerator(["a.mu", "b.cpp"], "inc", [], plugin_name="ours")
    made.generate()
    text = (tmp_path / "CMakeLists.txt").read_text()
    assert "  a.mu\n  b.cpp)" in text
    assert "target_include_directories(ours PRIVATE\n  inc)" in text
    with pytest.raises(FileExistsError):
        made.generate()
    assert (tmp_path / "CMakeLists.txt").read_text() == text


def test_loader_and_logger():
    assert ext_loader.load_ext("_ext", ["fused_adam"]).fused_adam
    with pytest.raises(AttributeError, match="'nothing'"):
        ext_loader.load_ext("_ext", ["nothing"])
    with pytest.raises(ImportError):
        ext_loader.load_ext("_nowhere")
    handlers = list(logger_util.LOGGER.handlers)
    assert logger_util.create_logger() is logger_util.LOGGER
    assert logger_util.LOGGER.handlers == handlers
