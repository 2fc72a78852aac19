"""Operators of the real package."""
