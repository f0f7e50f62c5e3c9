"""Optimizers: what to do with an answer. Pure step rules and iterations, without I/O."""
