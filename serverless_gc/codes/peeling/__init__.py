"""Sparse codes decoded by peeling: LT and LDPC, and what they share."""
