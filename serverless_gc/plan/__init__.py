"""What will it cost, will it fit, which code."""
