"""Laws of delay."""
