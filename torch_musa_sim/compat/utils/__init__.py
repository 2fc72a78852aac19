"""Tools around a port to musa: extensions, comparison with the CPU, conversion of CUDA sources."""
