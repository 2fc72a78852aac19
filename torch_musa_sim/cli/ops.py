"""`musa-sim ops`: which operators a program ran on the cards, and how."""

import argparse

from torch_musa_sim.cli import _device, _script

HELP = "run a script and list the operators it ran on the cards"
DESCRIPTION = "Runs an unmodified program and lists its operators: calls, bytes, virtual time, native or bridged."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="SCRIPT | MODULE:FUNCTION", help="what to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program")


def run(arguments: argparse.Namespace) -> int:
    _device.register()
    from torch_musa_sim import musa

    status = _script.run(_script.load(arguments.program, arguments.arguments))
    _script.wait_for_threads()
    operators = sorted(musa.op_statistics(), key=lambda op: (-op.device_ns, op.name))
    width = max([len(op.name) for op in operators], default=8)
    print(f"{'operator':{width}}  kernel        calls           bytes    virtual us")
    for op in operators:
        kernel = "bridged" if op.bridged else "native"
        print(f"{op.name:{width}}  {kernel:8}  {op.calls:9,}  {op.bytes:14,}  {op.device_ns / 1e3:12,.1f}")
    return status
