"""Training runs: logged values, curves, bars, and the runs that are kept in a file."""
