"""`musa-sim ops`: the report's way out, beside the program's own output and status."""

import json

PROGRAM = """
    import sys, torch
    x = torch.ones(4, 4, device="musa")
    torch.nonzero_static(x @ x, size=3)
    print("mine", sys.argv[1:])
    if "fail" in sys.argv: raise ValueError("on purpose")
"""


def test_text_follows_the_programs_output(musa_sim, script):
    done = musa_sim("ops", script(PROGRAM), "a", "--json")
    lines = done.stdout.splitlines()
    assert lines[0] == "mine ['a', '--json']"
    assert lines[1].startswith("Operators of script.py on MTT S5000")
    assert "Missing in torch_musa-2.7.1" in lines


def test_an_exception_still_gives_the_report_and_the_status(musa_sim, script):
    done = musa_sim("ops", script(PROGRAM), "fail", check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: on purpose\n")
    assert "cli" not in done.stderr
    assert "aten::nonzero_static" in done.stdout


def test_json_and_html_go_to_a_file(musa_sim, script, tmp_path):
    path = script(PROGRAM)
    done = musa_sim("ops", "--json", "-o", "report.json", path)
    assert done.stdout == "mine []\n"
    report = json.loads((tmp_path / "report.json").read_text())
    assert [op["name"] for op in report["missing"]] == ["aten::nonzero_static"]
    musa_sim("ops", "--html", "-o", "report.html", path)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_the_program_is_not_overwritten_and_a_bad_file_is_named_before_it_runs(musa_sim, script):
    path = script(PROGRAM)
    done = musa_sim("ops", "-o", path, path, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "would overwrite the program" in done.stderr
    done = musa_sim("ops", "-o", "no/such/folder/report", path, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "can't be written: No such file or directory" in done.stderr


def test_where_the_device_cannot_be_had_the_reason_is_said(musa_sim, script, tmp_path):
    metadata = tmp_path / "elsewhere" / "torch_musa-2.7.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_musa\nVersion: 2.7.1\n")
    done = musa_sim("ops", script(PROGRAM), check=False, PYTHONPATH=str(metadata.parent))
    assert done.returncode == 2
    assert done.stderr.startswith("musa-sim: the device isn't available here: ")
    assert done.stderr.count("\n") == 1
