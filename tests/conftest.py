"""All tests run on one engine and leave nothing in the home folder; tests of the choice set what they need."""

from __future__ import annotations

import os

os.environ.setdefault("HYBRID_LAB_CPU", "onnxruntime")
os.environ.setdefault("HYBRID_LAB_CACHE", "")
