"""Passes: functions from graph to graph. `graph/specialize.py` runs them in order."""
