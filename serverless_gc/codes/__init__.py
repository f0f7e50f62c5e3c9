"""Codes: linear maps with a tracker and a decoder."""
