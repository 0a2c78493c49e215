"""`python -m kernelwright VERB ...`."""

import sys

from kernelwright.cli import main

sys.exit(main(sys.argv[1:]))
