"""`musa-sim` runs a program as Python would, and says what is wrong with a command line."""

import subprocess
import sys

import pytest

# Prints what a program can see of how it was started, then ends as its first argument says.
MIRROR = """
    import os, pickle, sys
    class Local: pass
    pickle.dumps(Local())
    print(__name__, sys.argv, os.path.basename(sys.path[0]), os.path.basename(__file__), __spec__, flush=True)
    import neighbour
    how = sys.argv[1]
    if how == "exit": sys.exit(int(sys.argv[2]))
    if how == "text": sys.exit("a reason")
    if how == "raise": raise ValueError("on purpose")
    if how == "interrupt": raise KeyboardInterrupt
"""


def python(path, *arguments):
    return subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True, cwd=path.parent)


@pytest.mark.parametrize(
    "arguments",
    [["none"], ["exit", "0"], ["exit", "3"], ["exit", "257"], ["text"], ["raise"], ["none", "--json", "-x"]],
)
def test_a_script_sees_and_ends_what_it_would_without_us(arguments, musa_sim, script):
    script("", "neighbour.py")
    path = script(MIRROR)
    plain = python(path, *arguments)
    ours = musa_sim("ops", path, *arguments, check=False)
    assert ours.returncode == plain.returncode
    assert ours.stdout.startswith(plain.stdout)
    assert plain.stdout.startswith("__main__ [")
    assert ours.stderr == plain.stderr


def test_interrupt_ends_with_130_and_syntax_error_with_1(musa_sim, script):
    script("", "neighbour.py")
    assert musa_sim("ops", script(MIRROR), "interrupt", check=False).returncode == 130
    broken = script("x = = 1")
    ours, plain = musa_sim("ops", broken, check=False), python(broken)
    assert (ours.returncode, ours.stderr) == (1, plain.stderr)


def test_a_function_is_run_as_a_console_script(musa_sim, script):
    script("import sys\ndef main():\n    print(sys.argv)\n    return 5\n", "program.py")
    done = musa_sim("ops", "program:main", "a", "-b", check=False)
    assert done.stdout.startswith("['program:main', 'a', '-b']")
    assert done.returncode == 5


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nothing.py", "'nothing.py' is neither a file nor of the form module:function"),
        ("nowhere:main", "there is no module 'nowhere' (looked for nowhere:main)"),
        ("program:start", "module 'program' has no 'start'"),
        ("program:NAME", "program:NAME is a str, not a function"),
    ],
)
def test_what_is_no_program_is_named(target, sentence, musa_sim, script):
    script("NAME = 'x'\n", "program.py")
    done = musa_sim("ops", target, check=False)
    assert done.returncode == 2
    assert done.stderr == f"musa-sim: {sentence}\n"


def test_help_lists_every_command(musa_sim):
    from torch_musa_sim.cli import COMMANDS

    text = musa_sim("--help").stdout
    assert [name for name in COMMANDS if f"\n    {name} " not in text] == []


def test_no_command_and_an_unknown_one_are_refused(musa_sim):
    assert musa_sim(check=False).returncode == 2
    done = musa_sim("fly", check=False)
    assert done.returncode == 2
    assert "invalid choice: 'fly'" in done.stderr


@pytest.mark.parametrize("command", [("run",), ("run", "--report", "out.html"), ("ops",)], ids=" ".join)
def test_a_pool_that_was_left_open_and_a_thread_still_at_work_do_not_hinder_the_end(musa_sim, script, command):
    program = script("""
        import threading, time
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        pool.submit(print, "from the pool").result()
        threading.Thread(target=lambda: (time.sleep(0.2), print("from the thread"))).start()
        """)
    done = musa_sim(*command, program)
    assert "from the pool\nfrom the thread\n" in done.stdout
