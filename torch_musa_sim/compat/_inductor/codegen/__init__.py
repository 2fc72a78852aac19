"""Inductor's generators of code, under the names of the real package."""
