"""Tests; some of their modules are programs too, and import ONNX Runtime, which must not report to its maker."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
