"""Bytes under keys."""
