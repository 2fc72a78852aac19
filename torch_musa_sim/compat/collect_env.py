"""`python -m torch_musa.collect_env`, as the real package has it."""

from torch_musa_sim.collect_env import get_pretty_env_info, main

__all__ = ["get_pretty_env_info", "main"]

if __name__ == "__main__":
    main()
