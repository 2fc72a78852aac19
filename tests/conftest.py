"""Every test process has cards of its own: what other processes of this user hold doesn't change what a test sees."""

import os

os.environ["TORCH_MUSA_SIM_SCOPE"] = f"pytest.{os.getpid()}"
