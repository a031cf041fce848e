"""Memory plans: what runs in place, what is a view, and where the rest lies in one arena."""
