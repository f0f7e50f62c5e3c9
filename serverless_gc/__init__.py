"""Coded computation on AWS Lambda: gradients and matrix products that do not wait for stragglers."""
