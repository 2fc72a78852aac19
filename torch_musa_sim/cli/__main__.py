"""`python -m torch_musa_sim.cli`: the command where its script isn't on PATH."""

import sys

from torch_musa_sim.cli import main

sys.exit(main())
