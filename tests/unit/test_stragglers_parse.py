"""Laws of delay by name."""

import pytest

from serverless_gc.errors import InputError
from serverless_gc.stragglers import (
    Bimodal,
    Constant,
    Exponential,
    Gamma,
    LambdaLike,
    LogNormal,
    Lomax,
    Pareto,
    ShiftedExponential,
    Uniform,
    Weibull,
    lambda_heavy,
    lambda_mild,
    laws,
    parse_law,
)


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("constant:seconds=2", Constant(2.0)),
        ("exponential:rate=2", Exponential(2.0)),
        (" shifted-exponential: shift = 1 , rate=2e0 ", ShiftedExponential(1.0, 2.0)),
        ("pareto:shape=2.5,scale=1", Pareto(1.0, alpha=2.5)),
        ("bimodal:fast=1,slow=9", Bimodal(1.0, 9.0, 0.1)),
        ("uniform:low=1,high=3", Uniform(1.0, 3.0)),
        ("weibull:scale=1,shape=0.7", Weibull(1.0, 0.7)),
        ("gamma:shape=2,rate=3", Gamma(2.0, 3.0)),
        ("lomax:scale=1,shape=2.2", Lomax(1.0, 2.2)),
        ("lognormal:median=40,sigma=0.1", LogNormal(40.0, 0.1)),
        ("lambda-heavy", lambda_heavy()),
        ("lambda-mild", lambda_mild()),
        ("lambda", LambdaLike()),
        ("lambda:", LambdaLike()),
        ("lambda:p_cold=0,shift=1,rate=2", LambdaLike(ShiftedExponential(1.0, 2.0), p_cold=0.0)),
    ],
)
def test_a_law_by_name_is_the_law(text, law):
    assert parse_law(text) == law


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("parreto:scale=1,shape=2", "no law is called 'parreto'; did you mean 'pareto'"),
        ("", "no law is called ''; there are bimodal, constant, exponential"),
        ("exponential", "'exponential' needs rate: write exponential:rate"),
        ("pareto", "'pareto' needs scale and shape"),
        ("exponential:mean=2", "'mean=2' is no parameter=value of 'exponential': write exponential:rate=..."),
        ("exponential:2", "'2' is no parameter=value"),
        ("exponential:rate=2,", "'' is no parameter=value"),
        ("exponential:rate=2,rate=3", "rate of 'exponential' is given twice"),
        ("exponential:rate=fast", "rate of 'exponential' must be a number, got 'fast'"),
        ("exponential:rate=nan", "rate of 'exponential' must be finite"),
        ("exponential:rate=-1", "rate must be positive and finite, got -1.0, in 'exponential:rate=-1'"),
        ("lomax:scale=1,shape=0", "shape must be positive"),
        ("pareto:scale=0,shape=2", "scale must be positive"),
        ("lambda:p_cold=2", "p_cold must be at least 0 and at most 1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text, says):
    with pytest.raises(InputError) as caught:
        parse_law(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_listed_law_can_be_written_as_listed():
    for usage in laws():
        name, _, rest = usage.partition(":")
        wanted = [p for p in rest.split(",") if p and not p.startswith("[")]
        assert parse_law(f"{name}:{','.join(f'{p}=2' for p in wanted)}").mean() > 0
