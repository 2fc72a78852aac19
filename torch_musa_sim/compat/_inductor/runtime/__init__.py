"""What Inductor's generated code uses at run time."""
