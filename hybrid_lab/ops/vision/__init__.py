"""Operators for images and boxes."""
