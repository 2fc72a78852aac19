"""torch_musa._inductor, _dynamo and _export: what works on the cards does, the rest says in a sentence why it can't."""

import functools
import importlib
import inspect
import subprocess
import sys

import pytest
import torch
from name_table import all_names, has_signature, resolve
from test_signatures import refused, signature_of, unbound

torch_musa = pytest.importorskip("torch_musa")

PREFIXES = ("torch_musa._inductor", "torch_musa._dynamo", "torch_musa._export")
NAMES = [name for name in all_names() if name.module.startswith(PREFIXES)]


def load(name):
    return importlib.import_module(f"torch_musa.{name}")


@pytest.mark.parametrize("module", sorted({name.module for name in NAMES}))
def test_calls_of_the_real_package_bind(module):
    wrong = []
    for name in NAMES:
        if name.module == module and has_signature(name):
            signature = signature_of(name.signature)
            if name.kind == "classmethod":
                signature = unbound(signature)
            target = resolve(name.module, name.name)
            assert callable(target) or isinstance(target, functools.cached_property)
            wrong += refused(target, signature)
    assert not wrong, "\n".join(wrong)


def test_importing_torch_musa_loads_no_compiler():
    code = (
        "import sys, torch, torch_musa;"
        "assert not [m for m in sys.modules if m.startswith(('torch._inductor', 'torch_musa._inductor'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_device_interface_is_the_one_that_dynamo_uses():
    from torch._dynamo.device_interface import get_interface_for_device

    interface = load("_dynamo.device_interface").MusaInterface
    assert get_interface_for_device("musa") is interface
    assert interface.is_available()
    assert interface.is_bf16_supported()
    major, minor = torch.musa.get_device_capability()
    assert interface.get_compute_capability() == 10 * major + minor


@pytest.mark.parametrize("module", ["device_interface", "trace_rules", "backend.musagraphs", "variables.torch"])
def test_each_part_of_dynamo_can_be_the_first_to_be_imported(module):
    code = (
        f"import torch_musa._dynamo.{module}, torch._dynamo.device_interface as dynamo;"
        "print(dynamo.get_interface_for_device('musa:1').__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "MusaInterface\n", done.stderr


def test_device_words_are_musa_s():
    words = load("_inductor.codegen.device_op_overrides").MUSADeviceOpOverrides()
    text = "\n".join(
        str(method())
        for name, method in inspect.getmembers(words, inspect.ismethod)
        if not inspect.signature(method).parameters and not name.startswith("_")
    )
    assert "cuda" not in text.lower()
    assert "CUdeviceptr" not in text
    assert words.cpp_device_ptr() == "MUdeviceptr"
    assert words.cpp_kernel_type() == "MUfunction"
    assert words.cpp_global_scratch(2) == ("MUdeviceptr global_scratch_2 = 0;", "global_scratch_2")


def test_device_words_run():
    words = load("_inductor.codegen.device_op_overrides").MUSADeviceOpOverrides()
    scope = {"torch": torch}
    exec(words.import_get_raw_stream_as("raw") + "\n" + words.set_device(0) + "\n" + words.synchronize(), scope)
    with eval(words.device_guard(0), scope):
        assert scope["raw"](0) == torch.musa.current_stream(0).musa_stream


def test_registration_gives_inductor_the_words():
    from torch._inductor.codegen.common import get_device_op_overrides

    load("_inductor")._init_inductor_backend_registration()
    assert type(get_device_op_overrides("musa")).__name__ == "MUSADeviceOpOverrides"


def test_a_card_is_entered_by_a_line_of_code():
    from torch._inductor.graph import GraphLowering
    from torch._inductor.utils import IndentedBuffer
    from torch._inductor.virtualized import V

    line = load("_inductor.codegen.wrapper").EnterMUSADeviceContextManagerLine(0, None)
    code = IndentedBuffer()
    graph = object.__new__(GraphLowering)
    graph.cpp_wrapper = False
    with V.set_graph_handler(graph):
        line.codegen(code)
        code.writeline("pass")
    assert code.getvalue() == "with torch.musa._DeviceGuard(0):\n    pass\n"


def test_parameters_of_kernels_are_kept_with_their_file(tmp_path):
    cache = load("_inductor.codegen.codecache")
    cache.MusaKernelParamCache.set("k", {"mangled_name": "k_0"}, b"binary")
    known = cache.MusaKernelParamCache.get("k")
    assert known["mangled_name"] == "k_0"
    with open(known[cache.get_cpp_wrapper_mubin_path_name()], "rb") as file:
        assert file.read() == b"binary"
    assert cache.MusaKernelParamCache.get("other") is None


def test_gpu_is_musa():
    utils = load("_inductor.utils")
    assert [utils.is_gpu(kind) for kind in ("musa", "cpu", None)] == [True, False, False]
    assert not utils.has_triton()


def test_benchmarker_measures_virtual_time():
    benchmarker = load("_inductor.utils").TritonBenchmarker()
    small, large = (torch.ones(n, n, device="musa") for n in (64, 512))
    times = [benchmarker.benchmark_gpu(lambda x=x: x @ x, warmup=0, rep=0.1) for x in (small, large)]
    assert 0 < times[0] < times[1]
    with pytest.raises(ValueError, match="return_mode"):
        benchmarker.benchmark_gpu(lambda: None, return_mode="mode")


def test_options_of_the_compiler_have_the_runtime():
    builder = load("_inductor.cpp_builder")
    definitions, includes, _, _, _, libraries, _ = builder.get_cpp_torch_musa_options(True)
    assert "USE_MUSA" in definitions
    assert "musart" in libraries
    options = builder.CppTorchMusaOptions()
    assert set(includes) <= set(options.get_include_dirs())
    assert "musart" in options.get_libraries()
    assert "musart" not in builder.CppTorchMusaOptions(device_type="cpu").get_libraries()
    assert all(not part for part in builder.get_cpp_torch_musa_options(False))


def test_directories_of_libraries_are_the_ones_that_are_there(tmp_path):
    (tmp_path / "lib64").mkdir()
    paths = [str(tmp_path / "lib"), str(tmp_path / "other")]
    load("_inductor.cpp_builder")._transform_musa_paths(paths)
    assert paths == [str(tmp_path / "lib64"), str(tmp_path / "other")]


def test_patches_of_inductor_leave_it_working():
    # They change the process, so that they get one of their own.
    code = """
import torch, torch_musa
from torch._dynamo import trace_rules
from torch_musa._dynamo.trace_rules import _apply_dynamo_trace_rules_patches
from torch_musa._inductor import _aten_fallback, ir, utils
from torch._inductor.lowering import fallbacks
utils._apply_util_patches(); utils._apply_util_patches(); ir._apply_ir_patch()
_aten_fallback._make_torch_musa_aten_fallback()
_apply_dynamo_trace_rules_patches(); _apply_dynamo_trace_rules_patches()
assert torch._inductor.utils.GPU_TYPES.count("musa") == 1 and torch._inductor.utils.is_gpu("musa")
assert torch._inductor.ir.MUSATemplateBuffer is ir.MUSATemplateBuffer
assert torch.ops.aten.nll_loss_forward.default not in torch._inductor.decomposition.decompositions
assert {torch.ops.aten.nll_loss_forward, torch.ops.aten.nll_loss_forward.default} & set(fallbacks), "fallbacks"
assert trace_rules.lookup(torch.musa.current_stream) is trace_rules.TorchInGraphFunctionVariable
loss = lambda x, y: torch.nn.functional.cross_entropy(x.exp(), y)
x, y = torch.randn(4, 5), torch.arange(4)
torch.testing.assert_close(torch.compile(loss)(x.to("musa"), y.to("musa")).cpu(), loss(x, y))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def check_inference(backend):
    function = torch.compile(lambda a, b: ((a @ b).relu() + 1, a.sum()), backend=backend)
    for _ in range(4):
        a, b = torch.randn(8, 8), torch.randn(8, 8)
        product, total = function(a.to("musa"), b.to("musa"))
        torch.testing.assert_close(product.cpu(), (a @ b).relu() + 1)
        torch.testing.assert_close(total.cpu(), a.sum())


@pytest.fixture
def trees():
    """The module of trees with its checks on; no tree is left behind."""
    from torch._inductor import config

    module = load("_inductor.musagraph_trees")
    torch.manual_seed(0)
    with config.patch({"triton.slow_path_cudagraph_asserts": True, "triton.fast_path_cudagraph_asserts": True}):
        yield module
    module.reset_musagraph_trees()
    torch._dynamo.reset()


def test_backend_musagraphs_warms_up_records_and_replays(trees):
    check_inference(load("_dynamo.backend.musagraphs").MusagraphsBackend())
    manager = trees.get_manager(0, create_if_none_exists=False)
    assert manager.path_state is trees.ExecutionState.EXECUTION
    (root,) = manager.get_roots()
    assert manager.current_node is root
    assert root.num_descendants() == 0


def test_trees_compute_gradients(trees):
    layer = torch.nn.Linear(8, 8)
    ours = torch.nn.Linear(8, 8).to("musa")
    ours.load_state_dict(layer.state_dict())
    compiled = torch.compile(ours, backend=load("_dynamo.backend.musagraphs").MusagraphsBackend())
    for _ in range(4):
        x = torch.randn(4, 8)
        layer.zero_grad()
        ours.zero_grad()
        layer(x).pow(2).sum().backward()
        compiled(x.to("musa")).pow(2).sum().backward()
        torch.testing.assert_close(ours.weight.grad.cpu(), layer.weight.grad)
        torch.testing.assert_close(ours.bias.grad.cpu(), layer.bias.grad)
    (root,) = trees.get_manager(0, False).get_roots()
    assert root.num_descendants() == 1  # the backward graph follows the forward graph


def test_a_second_path_is_recorded_around_results_that_live(trees):
    backend = load("_dynamo.backend.musagraphs").MusagraphsBackend()
    first, second, third = (torch.compile(f, backend=backend) for f in (torch.sin, torch.exp, torch.neg))
    x = torch.rand(300, device="musa")

    def run(after):
        torch.compiler.cudagraph_mark_step_begin()
        kept = first(x)
        result = after(kept)
        torch.testing.assert_close(kept.cpu(), x.cpu().sin())
        return kept, result.cpu()

    for _ in range(3):
        _, result = run(second)
        torch.testing.assert_close(result, x.cpu().sin().exp())
    for _ in range(3):  # first is replayed, then third is new
        _, result = run(third)
        torch.testing.assert_close(result, -x.cpu().sin())
    manager = trees.get_manager(0, False)
    assert manager.debug_checkpointing_counter > 0
    assert sum(root.num_descendants() for root in manager.get_roots()) >= 2


def test_a_result_of_an_older_step_says_so(trees):
    compiled = torch.compile(torch.sin, backend=load("_dynamo.backend.musagraphs").MusagraphsBackend())
    x = torch.rand(4, device="musa")
    compiled(x)
    torch.compiler.cudagraph_mark_step_begin()
    old = compiled(x)
    torch.compiler.cudagraph_mark_step_begin()
    compiled(x + 1)
    with pytest.raises(RuntimeError, match="overwritten by a subsequent run"):
        old + 1


def test_musagraphs_inner_replays_on_its_own_buffers():
    run = load("_dynamo.backend.musagraphs").musagraphs_inner(lambda a: (a * 2,), [torch.ones(4, device="musa")])
    for value in (1.0, 3.0):
        (result,) = run(torch.full((4,), value, device="musa"))
        assert result.tolist() == [2 * value] * 4
    with pytest.raises(AssertionError, match="Expected 1 inputs"):
        run()


def test_graphs_of_the_cpu_are_skipped():
    utils = load("_inductor.musagraph_utils")
    assert utils.check_multiple_devices_or_any_cpu_nodes({torch.device("musa:0"): None}) is None
    graph = torch.fx.symbolic_trace(lambda x: x + 1).graph
    (node, *_) = graph.nodes
    assert "cpu" in utils.check_multiple_devices_or_any_cpu_nodes({torch.device("cpu"): node})
    assert utils.check_lowering_disable_musagraph({torch.device("musa:0"): node}) is None


def test_weak_reference_to_a_storage_expires():
    trees = load("_inductor.musagraph_trees")
    x = torch.ones(4, device="musa")
    reference = trees.map_to_ref(x)
    assert trees.is_live(reference)
    assert trees.maybe_deref(reference)[1] == x.data_ptr()
    del x
    assert reference.expired()
    assert not trees.is_live(reference)


TRITON = "Triton has no simulated card"
CPP = "writes no C\\+\\+ program around kernels"
AOT = "AOTInductor compiled ahead of time can't run on a simulated card"
REFUSED = [
    ("_inductor.codegen.triton", "MUSATritonScheduling", (None,), TRITON),
    ("_inductor.codegen.wrapper", "MUSATritonWrapperCodeGen", (), TRITON),
    ("_inductor.codegen.cpp_wrapper_cpu", "CppWrapperMusa", (), CPP),
    ("_inductor.codegen.cpp_wrapper_cpu", "CppWrapperMusa.get_device_include_path", ("musa",), CPP),
    ("_inductor.codegen.cpp_wrapper_musa", "MUSACppWrapper", (), CPP),
    ("_inductor.codegen.cpp_wrapper_musa", "MUSACppWrapper.create", (False, None), CPP),
    ("_inductor.codegen.cpp_wrapper_musa", "DeferredTritonCallWrapper", (), TRITON),
    ("_inductor.runtime.triton_heuristics", "MUSACachingAutotuner", (), TRITON),
    ("_inductor.runtime.triton_heuristics", "MUSADebugAutotuner", (), TRITON),
    ("_inductor.runtime.triton_heuristics", "cached_autotune", (None, [], {}, None), TRITON),
    ("_inductor.runtime.triton_heuristics", "_apply_triton_heuristics_patches", (), TRITON),
    ("_inductor.package", "_apply_package_patch", (), AOT),
    ("_inductor.package", "load_package", ("model.pt2", "musa"), AOT),
    ("_inductor.utils", "aot_inductor_launcher", ("model.so", "musa"), AOT),
    ("_export", "aot_load", ("model.so", "musa:0"), AOT),
]


@pytest.mark.parametrize(("module", "name", "arguments", "sentence"), REFUSED)
def test_what_no_simulated_card_has_says_why(module, name, arguments, sentence):
    with pytest.raises(NotImplementedError, match=sentence):
        resolve(f"torch_musa.{module}", name)(*arguments)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if "cpp_wrapper_musa" in n.module and ".generate" in n.name], ids=str
)
def test_methods_of_refused_classes_say_why(name):
    target = resolve(name.module, name.name)
    arguments = [None] * sum(
        p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
        for p in inspect.signature(target).parameters.values()
    )
    with pytest.raises(NotImplementedError, match=f"{TRITON}|{CPP}"):
        target(*arguments)
    with pytest.raises(TypeError):
        target(*arguments, no_such_argument=1)


def test_ahead_of_time_compilation_for_musa_says_why():
    compiler = load("_inductor.codegen.codecache").AotCodeCompiler
    with pytest.raises(NotImplementedError, match=AOT):
        compiler.compile(None, "", "", None, device_type="musa", additional_files=[])


def test_triton_s_benchmark_says_why():
    with pytest.raises(NotImplementedError, match=TRITON):
        load("_inductor.utils").TritonBenchmarker().triton_do_bench  # noqa: B018
