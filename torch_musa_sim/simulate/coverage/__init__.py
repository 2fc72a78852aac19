"""Which operators a program used, how they ran, and which of them another stack lacks.

with coverage.Recorder() as recorder:
    program()
print(coverage.as_text(recorder.report("program")))
"""

from torch_musa_sim.simulate.coverage.record import CoverageReport, Recorder
from torch_musa_sim.simulate.coverage.render import as_html, as_json, as_text, html_table

__all__ = ["CoverageReport", "Recorder", "as_html", "as_json", "as_text", "html_table"]
