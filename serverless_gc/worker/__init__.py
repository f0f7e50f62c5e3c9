"""What runs remotely."""
