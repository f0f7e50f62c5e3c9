"""Encoded optimization: frames, and the code that averages whoever answers."""
