"""`python -m hybrid_lab`: the same as the command `hybrid-lab`."""

import sys

from hybrid_lab.cli import main

sys.exit(main())
