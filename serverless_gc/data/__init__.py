"""Encoded data sets, by what they can compute: products and gradients, gradients of any loss, moments, encoded rows."""
