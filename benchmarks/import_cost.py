"""What registering the device adds to `import torch`, relative and absolute.

    python benchmarks/import_cost.py [--runs 15]

Each run starts two interpreters in turn, one with TORCH_DEVICE_BACKEND_AUTOLOAD=0; the figures are medians of the
processor time (user and system) that `import torch` took. Exits 1 when the hook adds more than 0.2 s.
"""

import argparse
import os
import statistics
import subprocess
import sys

LIMIT_SECONDS = 0.2
CODE = "import time; import torch; print(time.process_time(), 'torch_musa_sim' in __import__('sys').modules)"


def import_seconds(autoload: str) -> float:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    seconds, loaded = done.stdout.split()
    if loaded != str(autoload == "1"):
        raise SystemExit(f"the hook should{'' if autoload == '1' else ' not'} have run; is the package installed?")
    return float(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description="What the device adds to `import torch`.")
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    bare, with_hook = [], []
    for _ in range(runs):
        bare.append(import_seconds("0"))
        with_hook.append(import_seconds("1"))
    without, added = statistics.median(bare), statistics.median(with_hook) - statistics.median(bare)
    ratio = 1 + added / without
    print(f"import torch: {without:.3f} s; the device adds {added:.3f} s ({ratio:.2f}x), limit {LIMIT_SECONDS} s")
    return int(added > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
