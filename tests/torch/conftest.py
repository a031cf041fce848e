"""Files of tests that cannot be read without torch are left out where it is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_sizes.py", "test_states_of_modules.py", "test_tables.py"]
