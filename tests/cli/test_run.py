"""`musa-sim run`: an unmodified program on chosen cards."""

import subprocess
import sys

import pytest


def test_the_program_sees_the_chosen_cards(musa_sim, script):
    path = script("""
        import os, sys, torch
        print(torch.musa.device_count(), torch.musa.get_device_name(), torch.musa.mem_get_info()[1] >> 20, sys.argv[1:])
        print(os.environ["TORCH_MUSA_SIM_STRICT"], __name__)
    """)
    done = musa_sim("run", "--cards", "3", "--card", "S80", "--memory", "256MiB", "--strict", path, "--cards", "x")
    assert done.stdout == "3 MTT S80 256 ['--cards', 'x']\n1 __main__\n"


def test_settings_are_in_force_before_torch_is_loaded_and_in_child_processes(musa_sim, script):
    path = script("""
        import subprocess, sys
        code = "import torch; print(torch.musa.device_count())"
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout, end="")
        import ctypes
        ctypes.CDLL("libmtml.so.2")
        code = "import ctypes; ctypes.CDLL('libmtml.so.2'); print('found')"
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout, end="")
    """)
    assert musa_sim("run", "--cards", "5", path).stdout == "5\nfound\n"


def test_a_module_runs_as_with_python_m(musa_sim, script):
    script("import sys, torch\nprint(__name__, torch.musa.device_count(), sys.argv[1:])\nsys.exit(4)\n", "program.py")
    done = musa_sim("run", "--cards", "2", "-m", "program", "-a", "--cards", "9", check=False)
    assert (done.stdout, done.returncode) == ("__main__ 2 ['-a', '--cards', '9']\n", 4)


@pytest.mark.parametrize(("ending", "status"), [("sys.exit(7)", 7), ("raise ValueError('x')", 1), ("pass", 0)])
def test_the_exit_status_is_the_programs(ending, status, musa_sim, script):
    path = script(f"import sys, torch\ntorch.ones(1, device='musa')\n{ending}\n")
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True)
    ours = musa_sim("run", path, check=False)
    assert plain.returncode == ours.returncode == status
    assert ours.stderr == plain.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name what to run: a script, module:function, or -m and a module"),
        (["nothing.py"], "'nothing.py' is neither a file nor of the form module:function"),
        (["-m", "no_such_module"], "-m no_such_module: there is no module of that name"),
        (["--cards", "0", "x.py"], "TORCH_MUSA_SIM_CARDS=0 is not accepted; accepted: 1 .. 512"),
        (["--card", "H100", "x.py"], "H100 is no known card model; accepted: S4000, S5000, S80"),
        (["--memory", "much", "x.py"], "TORCH_MUSA_SIM_MEMORY=much is not accepted"),
        (["--report", "/no/such/folder/x.html", "x.py"], "--report /no/such/folder/x.html: No such file or directory"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(arguments, sentence, musa_sim):
    done = musa_sim("run", *arguments, check=False)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
