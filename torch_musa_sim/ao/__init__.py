"""Quantisation of convolutions that end in SiLU, which torch.ao.nn.intrinsic lacks and torch_musa adds to it.

The fused containers are in `fused`, their twins for quantisation-aware training in `qat`, the quantised ones in
`quantized`; `lowering` turns an exported quantised program into one that runs.
"""

from types import ModuleType

from torch.ao.nn import intrinsic
from torch.ao.nn.intrinsic import qat as intrinsic_qat
from torch.ao.nn.intrinsic import quantized as intrinsic_quantized

from torch_musa_sim.ao import fused, qat, quantized


def register_intrinsic_modules() -> None:
    """Puts the classes into torch.ao.nn.intrinsic, its `qat` and its `quantized`; a second call changes nothing.

    `import torch` has loaded those three packages already, so there is nothing to put off.
    """
    places: tuple[tuple[ModuleType, ModuleType], ...] = (
        (intrinsic, fused),
        (intrinsic_qat, qat),
        (intrinsic_quantized, quantized),
    )
    for package, ours in places:
        for name in ours.__all__:
            setattr(package, name, getattr(ours, name))
            if name not in getattr(package, "__all__", [name]):  # `qat` leaves it to the underscores
                package.__all__.append(name)
