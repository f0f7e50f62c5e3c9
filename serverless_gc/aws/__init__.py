"""Asking AWS: what the store and the invoker share. Where a service is, as whom it is asked, and signed HTTP."""
