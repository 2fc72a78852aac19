"""Quantisation of convolutions that end in SiLU: the classes under torch.ao.nn.intrinsic and the lowering of programs.

The reference is the float formula; where values are rounded to a grid, the tolerance is made of its steps.
"""

import copy
import sys
import types

import pytest
import torch
from torch import nn
from torch.ao import quantization
from torch.ao.nn import intrinsic
from torch.ao.nn.quantized.reference import Conv2d as ReferenceConv2d
from torch.nn import functional
from torch_musa.core import lowering
from torch_musa.core.ao.nn.intrinsic.modules import fused
from torch_musa.core.ao.nn.intrinsic.qat.modules import conv_fused
from torch_musa.core.ao.nn.intrinsic.quantized.modules import conv_add, conv_silu
from torch_musa.core.ao.register_helper import _register_ao_intrinsic_modules

# torch has deprecated the eager quantisation that torch_musa extends.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch")]
DEVICES = ("cpu", "musa")
Q = torch.ops.quantized_decomposed


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(3)


def conv(**changes):
    return nn.Conv2d(**{"in_channels": 4, "out_channels": 6, "kernel_size": 3, "padding": 1, "groups": 2, **changes})


def trained_norm():
    norm = nn.BatchNorm2d(6)
    norm.weight.data.uniform_(0.5, 2)
    norm.bias.data.normal_()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return norm


def test_the_classes_are_part_of_torch_ao():
    _register_ao_intrinsic_modules()  # once more changes nothing
    for package, module in (
        (intrinsic, fused),
        (intrinsic.qat, conv_fused),
        (intrinsic.quantized, conv_add),
        (intrinsic.quantized, conv_silu),
    ):
        for name in module.__all__:
            if not name.startswith("_"):
                assert getattr(package, name) is getattr(module, name)
                assert getattr(package, "__all__", [name]).count(name) == 1
    assert torch.ao.nn.intrinsic.ConvSiLU2d is fused.ConvSiLU2d


@pytest.mark.parametrize("device", DEVICES)
def test_containers_compute_their_parts_in_order(device):
    c, norm, x, y = conv(), trained_norm().eval(), torch.randn(2, 4, 5, 5), torch.randn(2, 6, 5, 5)
    expected = {
        "silu": functional.silu(c(x)),
        "bn": functional.silu(norm(c(x))),
        "add": functional.silu(torch.add(c(x), y)),
    }
    x, y = x.to(device), y.to(device)
    found = {
        "silu": intrinsic.ConvSiLU2d(c, nn.SiLU()).to(device)(x),
        "bn": intrinsic.ConvBnSiLU2d(c, norm, nn.SiLU()).to(device)(x),
        "add": intrinsic.ConvAddSiLU2d(c, torch.add, nn.SiLU()).to(device)(x, y),
    }
    for name, value in expected.items():
        torch.testing.assert_close(found[name].cpu(), value)


def test_containers_refuse_other_parts():
    with pytest.raises(TypeError, match="silu is a ReLU, it must be a SiLU"):
        fused.ConvSiLU2d(conv(), nn.ReLU())
    with pytest.raises(TypeError, match="bn is a BatchNorm1d, it must be a BatchNorm2d"):
        fused.ConvBnSiLU2d(conv(), nn.BatchNorm1d(6), nn.SiLU())
    with pytest.raises(TypeError, match="add is a int, it must be callable"):
        fused.ConvAddSiLU2d(conv(), 3, nn.SiLU())


def qat_config():
    return quantization.get_default_qat_qconfig("x86")


@pytest.mark.parametrize("device", DEVICES)
def test_training_rounds_the_weight_and_passes_gradients(device):
    container = fused.ConvSiLU2d(conv(), nn.SiLU())
    container.qconfig = qat_config()
    module = intrinsic.qat.ConvSiLU2d.from_float(container).to(device)
    x = torch.randn(2, 4, 5, 5)
    found = module(x.to(device))
    found.sum().backward()
    weight, bias = container[0].weight.detach().cpu(), container[0].bias.detach().cpu()
    scale = torch.maximum(-weight.amin((1, 2, 3)) / 128, weight.amax((1, 2, 3)) / 127).reshape(-1, 1, 1, 1)
    rounded = torch.round(weight / scale).clamp(-128, 127) * scale
    expected = functional.silu(functional.conv2d(x, rounded, bias, padding=1, groups=2))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
    assert module.weight.grad.abs().sum() > 0
    unrounded = functional.silu(functional.conv2d(x, weight, bias, padding=1, groups=2))
    assert (found.cpu() - unrounded).abs().max() > 1e-3


@pytest.mark.parametrize("device", DEVICES)
def test_training_with_a_norm_follows_the_float_module(device):
    container = fused.ConvBnSiLU2d(conv(bias=False), trained_norm(), nn.SiLU())
    norm = copy.deepcopy(container[1])
    container.qconfig = qat_config()
    x = torch.randn(8, 4, 5, 5)
    module = conv_fused.ConvBnSiLU2d.from_float(container).to(device)
    module.apply(quantization.disable_fake_quant)
    found = module(x.to(device))
    mean_after = module.bn.running_mean.cpu()
    y = functional.conv2d(x, container[0].weight.detach().cpu(), padding=1, groups=2)
    batch_mean = y.mean((0, 2, 3))
    batch_var = y.var((0, 2, 3), correction=0)
    normed = (y - batch_mean.reshape(-1, 1, 1)) / (batch_var.reshape(-1, 1, 1) + norm.eps).sqrt()
    expected = functional.silu(normed * norm.weight.reshape(-1, 1, 1) + norm.bias.reshape(-1, 1, 1))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mean_after, 0.9 * norm.running_mean + 0.1 * batch_mean, rtol=1e-4, atol=1e-4)
    module.eval()
    trained = module.to_float()
    assert type(trained) is fused.ConvSiLU2d
    torch.testing.assert_close(trained.to(device)(x.to(device)), module(x.to(device)), rtol=1e-4, atol=1e-4)


def test_training_modules_say_what_they_lack():
    with pytest.raises(ValueError, match="needs a qconfig"):
        conv_fused.ConvSiLU2d(4, 6, 3)
    with pytest.raises(ValueError, match="needs a qconfig"):
        conv_fused.ConvBnSiLU2d.from_float(fused.ConvBnSiLU2d(conv(), nn.BatchNorm2d(6), nn.SiLU()))
    with pytest.raises(TypeError, match="takes a float ConvSiLU2d, not a Conv2d"):
        conv_fused.ConvSiLU2d.from_float(conv())


def quantised(x, scale=0.03, zero_point=128):
    return torch.quantize_per_tensor(x, scale, zero_point, torch.quint8)


def observed(container, *inputs):
    """`container` with a qconfig and an observer that has seen its result for `inputs`."""
    container.qconfig = quantization.get_default_qconfig("x86")
    container.activation_post_process = container.qconfig.activation()
    container.activation_post_process(container(*inputs))
    return container


def weight_error(c, x):
    """What rounding the weight to int8, half a step of at most max|w| / 127 each, can change in a result."""
    step = c.weight.detach().abs().amax() / 127
    ones = torch.ones_like(c.weight)
    return float(functional.conv2d(x.abs(), ones, None, c.stride, c.padding, c.dilation, c.groups).max() * step / 2)


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_quantised_conv_follows_the_float_formula(mode):
    c = conv(padding_mode=mode)
    x = quantised(torch.randn(2, 4, 6, 6))
    container = observed(fused.ConvSiLU2d(c, nn.SiLU()), x.dequantize())
    module = intrinsic.quantized.ConvSiLU2d.from_float(container)
    found = module(x)
    expected = container(x.dequantize())
    assert found.dtype == torch.quint8
    assert found.q_scale() == pytest.approx(module.scale)
    assert found.q_zero_point() == module.zero_point
    low, high = -module.zero_point * module.scale, (255 - module.zero_point) * module.scale
    bound = 1.1 * weight_error(c, x.dequantize()) + module.scale  # silu's slope is at most 1.1
    assert (found.dequantize() - expected.clamp(low, high)).abs().max() <= bound
    assert bound < expected.abs().max()
    # To the last step: the formula on the values that the int8 weight stands for.
    padded = functional.pad(x.dequantize(), (1, 1, 1, 1), mode="reflect" if mode == "reflect" else "constant")
    exact = functional.silu(functional.conv2d(padded, module.weight().dequantize(), c.bias, groups=2))
    again = torch.quantize_per_tensor(exact.detach(), module.scale, module.zero_point, torch.quint8)
    assert (found.int_repr().int() - again.int_repr().int()).abs().max() <= 1
    values = module(x.dequantize().to("musa"))
    assert values.device.type == "musa"
    assert (values.cpu() - found.dequantize()).abs().max() <= module.scale * 1.001


def test_quantised_conv_and_sum_follow_the_float_formula():
    c = conv(stride=2)
    x, y = quantised(torch.randn(2, 4, 6, 6)), quantised(torch.randn(2, 6, 3, 3), 0.02, 120)
    container = observed(fused.ConvAddSiLU2d(c, torch.add, nn.SiLU()), x.dequantize(), y.dequantize())
    module = conv_add.ConvAddSiLU2d.from_float(container)
    found, expected = module(x, y), container(x.dequantize(), y.dequantize())
    low, high = -module.zero_point * module.scale, (255 - module.zero_point) * module.scale
    bound = 1.1 * weight_error(c, x.dequantize()) + module.scale
    assert (found.dequantize() - expected.clamp(low, high)).abs().max() <= bound
    values = module(x.dequantize().to("musa"), y.dequantize().to("musa"))
    assert (values.cpu() - found.dequantize()).abs().max() <= module.scale * 1.001
    assert "QuantizedConvAddSiLU2d" in repr(module)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("norm", [False, True])
def test_a_trained_module_becomes_a_quantised_one(device, norm):
    """The usual way of torch: prepare_qat, train, convert, with these classes in its mappings."""
    parts = (conv(), trained_norm(), nn.SiLU()) if norm else (conv(), nn.SiLU())
    container = (fused.ConvBnSiLU2d if norm else fused.ConvSiLU2d)(*parts)
    twin = conv_fused.ConvBnSiLU2d if norm else conv_fused.ConvSiLU2d
    model = nn.Sequential(container).train().to(device)
    model.qconfig = qat_config()
    quantization.prepare_qat(model, mapping={type(container): twin}, inplace=True)
    x = torch.randn(4, 4, 6, 6, device=device)
    for _ in range(2):
        model(x)
    model.eval()
    trained = model(x).cpu()
    made = quantization.convert(model, mapping={twin: conv_silu.ConvSiLU2d})
    assert type(made[0]) is conv_silu.ConvSiLU2d
    step = made[0].scale
    assert (made[0](x).cpu() - trained).abs().max() <= 1.01 * step
    state = made.state_dict()
    other = conv_silu.ConvSiLU2d(4, 6, 3, padding=1, groups=2)
    other.load_state_dict({name.removeprefix("0."): value for name, value in state.items()})
    assert torch.equal(other(x), made[0](x))


@pytest.mark.parametrize("device", DEVICES)
def test_a_reference_module_becomes_a_quantised_one(device):
    c = conv().to(device)
    parameters = {
        "qscheme": torch.per_channel_affine,
        "dtype": torch.qint8,
        "scale": torch.full((6,), 0.004, device=device),
        "zero_point": torch.zeros(6, dtype=torch.int64, device=device),
        "axis": 0,
    }
    reference = ReferenceConv2d.from_float(c, parameters)
    x = torch.randn(2, 4, 6, 6)
    for module in (
        conv_silu.ConvSiLU2d.from_reference(nn.Sequential(reference, nn.SiLU()), 0.05, 20),
        conv_silu.ConvSiLU2d.from_reference(reference, torch.tensor(0.05), torch.tensor(20)),
    ):
        assert (module.scale, module.zero_point) == (pytest.approx(0.05), 20)
        rounded = torch.round(c.weight.detach().cpu() / 0.004).clamp(-128, 127) * 0.004
        exact = functional.silu(functional.conv2d(x, rounded, c.bias.detach().cpu(), padding=1, groups=2))
        exact = exact.clamp(-20 * 0.05, 235 * 0.05)
        assert (module(x.to(device)).cpu() - exact).abs().max() <= 0.05 / 2 + 1e-4


def test_quantised_modules_say_what_they_lack():
    module = conv_silu.ConvSiLU2d(4, 6, 3, device="musa")
    with pytest.raises(ValueError, match="3 dimensions"):
        module(torch.ones(4, 5, 5))
    with pytest.raises(TypeError, match=r"fused.ConvSiLU2d or .*not Conv2d"):
        conv_silu.ConvSiLU2d.from_float(conv())
    with pytest.raises(ValueError, match="has no qconfig"):
        conv_silu.ConvSiLU2d.from_float(fused.ConvSiLU2d(conv(), nn.SiLU()))
    with pytest.raises(ValueError, match="prepare_qat"):
        conv_silu.ConvSiLU2d.from_float(conv_fused.ConvSiLU2d(4, 6, 3, qconfig=qat_config()))


class Exported(nn.Module):
    """What quantisation after export leaves: quantise and dequantise around the input and the weight."""

    def __init__(self):
        super().__init__()
        import torch.ao.quantization.fx._decomposed  # defines the operators

        self.conv = conv(groups=1)
        self.register_buffer("scale", self.conv.weight.detach().abs().amax((1, 2, 3)) / 127)
        self.register_buffer("zero", torch.zeros(6, dtype=torch.int64))

    def forward(self, x):
        grid = (0.03, 128, 0, 255, torch.uint8)
        x = Q.dequantize_per_tensor(Q.quantize_per_tensor(x, *grid), *grid)
        channels = (self.scale, self.zero, 0, -128, 127, torch.int8)
        weight = Q.dequantize_per_channel(Q.quantize_per_channel(self.conv.weight, *channels), *channels)
        return torch.relu(functional.conv2d(x, weight, self.conv.bias, padding=1)).flatten(1)


@pytest.mark.parametrize("device", DEVICES)
def test_a_lowered_program_keeps_int8_weights_and_the_results(device):
    model, x = Exported().eval().to(device), torch.randn(2, 4, 5, 5, device=device)
    lowered = lowering.lower_pt2e_quantized_to_x86(model, (x,))
    operators = {str(node.target) for node in lowered.graph.nodes if node.op == "call_function"}
    constants = [
        getattr(lowered, node.target)
        for node in lowered.graph.nodes
        if node.op == "get_attr" and node.target.startswith("_frozen")
    ]
    assert "quantized_decomposed.quantize_per_channel.default" not in operators  # done once, not at each call
    assert {constant.device.type for constant in constants} == {device}
    if device == "musa":
        assert torch.int8 in {constant.dtype for constant in constants}
    else:
        assert "onednn.qconv_pointwise.default" in operators
    with torch.no_grad():
        for given in (x, torch.randn_like(x)):
            torch.testing.assert_close(lowered(given), model(given), rtol=1e-4, atol=1e-4)
            assert lowered(given).device.type == device


def test_lowering_refuses_other_arguments():
    with pytest.raises(TypeError, match="it must be a tuple"):
        lowering.lower_pt2e_quantized_to_x86(nn.ReLU(), torch.ones(1))
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module"):
        lowering.lower_pt2e_quantized_to_x86(torch.relu, (torch.ones(1),))


def test_the_patch_takes_over_models_on_musa_only(monkeypatch):
    from torch_musa_sim.ao import lowering as implementation

    monkeypatch.setattr(implementation, "HOMES", ("a_missing_package.lowering",))
    with pytest.raises(ImportError, match=r"install torchao, or call torch_musa\.core\.lowering"):
        lowering.apply_lowering_patch()
    home = types.ModuleType("some_quantisation_package")
    home.lower_pt2e_quantized_to_x86 = lambda model, example_inputs: "its own"
    monkeypatch.setitem(sys.modules, home.__name__, home)
    monkeypatch.setattr(implementation, "HOMES", ("a_missing_package.lowering", home.__name__))
    lowering.apply_lowering_patch()
    lowering.apply_lowering_patch()
    x = torch.randn(1, 4, 5, 5)
    assert home.lower_pt2e_quantized_to_x86(Exported(), (x,)) == "its own"
    model = Exported().eval().to("musa")
    lowered = home.lower_pt2e_quantized_to_x86(model, (x.to("musa"),))
    torch.testing.assert_close(lowered(x.to("musa")), model(x.to("musa")))
