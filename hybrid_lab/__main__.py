"""`python -m hybrid_lab`: the same as the command `hybrid-lab`."""

import sys

from .cli import main

sys.exit(main())
