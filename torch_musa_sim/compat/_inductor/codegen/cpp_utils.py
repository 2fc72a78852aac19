"""ATen's words for devices in generated C++."""

DEVICE_TO_ATEN = {"cpu": "at::kCPU", "cuda": "at::kCUDA", "musa": "at::kMUSA"}
