"""Polar codes: design, layout, trackers, and decoders as programs over blocks."""
