"""Sines and roots to fifty digits, as fractions, and complex numbers of fractions. Standard library only."""

from fractions import Fraction
from functools import cache
from math import isqrt, prod

DIGITS, GUARD = 50, 10


def rounded(x):
    """Return the nearest fraction of so many digits: what is exactly a short decimal comes out exactly."""
    return Fraction(round(x * 10**DIGITS), 10**DIGITS)


@cache
def pi():
    """Return pi by Machin's formula, with digits to guard."""
    return 16 * _arctan(5) - 4 * _arctan(239)


def _arctan(inverse):
    one = 10 ** (DIGITS + GUARD)
    term, total, n = one // inverse, 0, 1
    while term:
        total += term // n if n % 4 == 1 else -(term // n)
        term //= inverse**2
        n += 2
    return Fraction(total, one)


@cache
def sine(x):
    """Return the sine of ``pi x``: symmetric, and exact where it is 0, 1/2 or 1."""
    x = Fraction(x) % 2
    if x > 1:
        return -sine(x - 1)
    if x > Fraction(1, 2):
        return sine(1 - x)
    one = 10 ** (DIGITS + GUARD)
    angle = round(pi() * x * one)
    term, total, n = angle, 0, 1
    while term:
        total += term
        term = -term * angle * angle // (one * one * (n + 1) * (n + 2))
        n += 2
    return rounded(Fraction(total, one))


def cosine(x):
    """Return the cosine of ``pi x``."""
    return sine(Fraction(x) + Fraction(1, 2))


def root(x):
    """Return the square root of a fraction, with as many digits after the leading one as the others have."""
    x = Fraction(x)
    if not x:
        return x
    shift = max(0, x.denominator.bit_length() - x.numerator.bit_length())
    one = 10 ** (DIGITS + GUARD) << shift
    return Fraction(isqrt(x.numerator * one * one // x.denominator), one)


class Complex:
    """A complex number of two fractions, for the algebra that was written for one."""

    __slots__ = ("imag", "real")

    def __init__(self, real, imag=0):
        self.real, self.imag = Fraction(real), Fraction(imag)

    def __add__(self, other):
        other = as_complex(other)
        return Complex(self.real + other.real, self.imag + other.imag)

    def __neg__(self):
        return Complex(-self.real, -self.imag)

    def __sub__(self, other):
        return self + -as_complex(other)

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        other = as_complex(other)
        return Complex(self.real * other.real - self.imag * other.imag, self.real * other.imag + self.imag * other.real)

    def __truediv__(self, other):
        other = as_complex(other)
        size = other.real**2 + other.imag**2
        return self * Complex(other.real / size, -other.imag / size)

    def __rtruediv__(self, other):
        return as_complex(other) / self

    def __pow__(self, exponent):
        return prod([self] * exponent, start=Complex(1))

    def __bool__(self):
        return bool(self.real or self.imag)

    __radd__, __rmul__ = __add__, __mul__

    def conjugate(self):
        """Return the number with the other sign of its imaginary part."""
        return Complex(self.real, -self.imag)


def as_complex(x):
    """Return a number as a complex one."""
    return x if isinstance(x, Complex) else Complex(x)


def circle(x):
    """Return ``exp(i pi x)``."""
    return Complex(cosine(x), sine(x))


def read(text):
    """Return the number that a float, or a pair of them with a blank between, is in binary: exactly."""
    parts = [Fraction(float.fromhex(part)) for part in text.split()]
    return parts[0] if len(parts) == 1 else Complex(*parts)


def written(x):
    """Return a number, or nested lists of them, as the nearest floats; complex ones as pairs."""
    if isinstance(x, list):
        return [written(y) for y in x]
    return [float(x.real), float(x.imag)] if isinstance(x, Complex) else float(x)
