"""`python -m torch_musa_sim.collect_env`: what to paste into a bug report, in the style of torch.utils.collect_env.

torch's own report comes first (it knows no out-of-tree backend), then ours.
"""

import sys

from torch_musa_sim.cli import _checks


def get_pretty_env_info() -> str:
    """torch's report with ours behind it. Where torch can't be imported, the reason stands in its place."""
    try:
        from torch.utils import collect_env

        theirs = collect_env.get_pretty_env_info()
    except Exception as error:
        theirs = f"torch.utils.collect_env failed: {type(error).__name__}: {error}"
    report = _checks.examine()
    lines = [theirs.rstrip(), "", "torch_musa_sim:"]
    for part in ("versions", "cards", "host"):
        lines += [f"{name}: {value}" for name, value in report[part].items()]
    changed = [one for one in report["settings"] if one["value"] != one["default"]]
    lines += ["", "Settings that differ from their defaults:"]
    lines += [f"{one['name']}={one['value']}" for one in changed] or ["none"]
    lines += ["", "Problems:"]
    lines += [one["what"] for one in report["problems"]] or ["none"]
    return "\n".join(lines)


def main() -> None:
    """Prints the report."""
    print("Collecting environment information...", file=sys.stderr)
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
