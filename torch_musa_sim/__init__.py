"""A simulated Moore Threads musa device for PyTorch."""
