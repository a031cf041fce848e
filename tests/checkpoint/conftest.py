"""The training of these tests lies beside them, where processes that they start find it too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
