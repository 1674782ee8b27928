"""`python -m lightning_timing`: the command line, where the script `lightning-timing` is not on the path."""

import sys

from lightning_timing.cli.main import main

sys.exit(main())
