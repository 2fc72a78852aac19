"""Puts the modules into torch.ao.nn.intrinsic, which has happened when the device was registered."""

from torch_musa_sim.ao import register_intrinsic_modules as _register_ao_intrinsic_modules

__all__ = ["_register_ao_intrinsic_modules"]
