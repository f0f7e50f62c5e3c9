"""Run one task somewhere, one attempt."""
