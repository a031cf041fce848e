"""Operators of detectors as helper functions."""
