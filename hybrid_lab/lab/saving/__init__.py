"""Saves and loads of the lab: actions of the buttons, earlier saves, undo, autosaves."""
