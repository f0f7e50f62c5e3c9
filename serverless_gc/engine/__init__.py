"""The round engine: a state machine without I/O, and its hosts."""
