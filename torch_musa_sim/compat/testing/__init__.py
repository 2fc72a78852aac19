"""Helpers for tests of operators on musa against the CPU.

TORCH_MUSA_TESTING_NO_TF32 set to anything but nothing keeps fp32 matrix products out of tf32 in this process.
"""

import os

import torch

no_tf32 = os.environ.get("TORCH_MUSA_TESTING_NO_TF32", None)
if no_tf32:
    torch.set_float32_matmul_precision("highest")
