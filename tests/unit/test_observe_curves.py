"""The picture of decode errors: what is a line, what is not, and its labels."""

import numpy as np
import pytest
from matplotlib import image

from serverless_gc.codes import get
from serverless_gc.errors import InputError
from serverless_gc.observe.curves import plot_errors
from serverless_gc.plan import error_curve


def test_lines_are_the_errors_and_exact_codes_are_named(tmp_path):
    path = tmp_path / "errors.png"
    curves = [error_curve(get("bibd", n_workers=7), trials=5), error_curve(get("mds", n_workers=8, k=4), trials=5)]
    figure = plot_errors(curves, path, "two codes", mark=0.25)
    for axes, errors in zip(figure.axes, (curves[0].mean, curves[0].worst), strict=True):
        bibd, mds, mark = axes.get_lines()
        drawn = bibd.get_ydata()
        assert np.isnan(drawn[0])  # no error, no point
        assert drawn[1:] == pytest.approx(errors[1:])
        assert np.isnan(mds.get_ydata()).all()
        assert set(mark.get_xdata()) == {0.25}
        assert axes.get_yscale() == "log"
        assert axes.get_ylim()[0] < errors[1]
        assert [text.get_text() for text in axes.texts] == ["25% stragglers"]
        assert [line.get_label() for line in (bibd, mds)] == ["bibd", "mds (exact)"]
    assert image.imread(path).shape[0] > 300


def test_many_codes_are_told_apart():
    curves = [error_curve(get("uncoded", n_workers=n), trials=1) for n in range(4, 14)]
    lines = plot_errors(curves).axes[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(curves)


def test_nothing_to_draw_is_said():
    with pytest.raises(InputError, match="nothing to draw"):
        plot_errors([])
