"""Data blocks on a polynomial curve: Lagrange codes, polynomially coded regression, Berrut interpolation."""
