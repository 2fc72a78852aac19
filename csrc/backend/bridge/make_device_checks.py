"""Writes device_checks.inc: operators whose CUDA kernel lets no CPU tensor pass, not even a 0-dim one.

The fact stands in torch's native_functions.yaml (shipped with the wheel): operators with a CUDA kernel and without
`device_check: NoCheck`. Run it when the torch version changes: python make_device_checks.py > device_checks.inc
"""

import importlib.util
import re
from pathlib import Path


def checked_operators(text: str) -> list[str]:
    names = []
    for entry in re.split(r"\n(?=- func:)", text):
        match = re.match(r"- func: ([\w.]+)\(", entry)
        if match is None or "device_check: NoCheck" in entry or "CompositeImplicitAutograd" in entry:
            continue
        has_cuda = re.search(r"^ +[\w, ]*\bCUDA\b[\w, ]*:", entry, re.MULTILINE)
        if has_cuda or "structured_delegate" in entry:
            names.append(match.group(1))
    return sorted(names)


def main() -> None:
    spec = importlib.util.find_spec("torchgen")
    if spec is None or spec.origin is None:
        raise SystemExit("torchgen comes with torch; install torch first")
    yaml = Path(spec.origin).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    print("// Written by make_device_checks.py from torch 2.13's native_functions.yaml; sorted.")
    for name in checked_operators(yaml.read_text()):
        print(f'"{name}",')


if __name__ == "__main__":
    main()
