"""Models as HTML: the widget, script-free HTML, and one file for people without a kernel."""
