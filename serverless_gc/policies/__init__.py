"""When to stop waiting."""
