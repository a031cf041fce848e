"""Memory plans: operators that run in place, views, and the offsets of the other values in one arena."""
