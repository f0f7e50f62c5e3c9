import sys

import numpy as np
import pytest
from matplotlib import image

from serverless_gc.errors import ConfigError, InputError
from serverless_gc.observe import Span, plot_timeline
from serverless_gc.observe.plot import _lanes


def test_overlapping_attempts_get_lanes_and_following_ones_share():
    def attempt(number, start, end):
        return Span(5, number, 0, start, end)

    placed = _lanes([attempt(0, 0, 4), attempt(1, 2, 5), attempt(2, 4, 6)], {5: 7})
    (y0, tall0), (y1, _), (y2, _) = [place for _, place in placed]
    assert tall0 == pytest.approx(0.39)
    assert y0 == y2 != y1
    assert all(6.5 < y < 7.5 for y in (y0, y1))
    ((_, (y, tall)),) = _lanes([attempt(0, 0, 4)], {5: 7})
    assert (y, tall) == (pytest.approx(7), pytest.approx(0.78))


SPANS = [
    Span(0, 0, 0, 0.0, 1.0, 0.2, 0.3, 0.4, 0.1),
    Span(1, 0, 0, 0.0, 1.2, 0.2, 0.3, 0.6, 0.1, "surplus"),
    Span(2, 0, 0, 0.0, 0.3, 0.3, fate="failed"),
    Span(2, 1, 0, 0.4, 1.3, 0.9, fate="voided"),
    Span(0, 0, 1, 5.0, 5.5, 0.1, 0.1, 0.3, 0.0),
]


def test_picture_has_an_axis_a_round_a_legend_and_the_decodable_line(tmp_path):
    path = tmp_path / "t.png"
    figure = plot_timeline(SPANS, path, title="two rounds", decodable={0: 1.0, 1: 5.5})
    assert len(figure.axes) == 2
    first, second = figure.axes
    assert [line.get_xdata()[0] for line in first.lines] == [1.0]
    assert [line.get_xdata()[0] for line in second.lines] == [0.5]
    assert max(p.get_x() + p.get_width() for p in first.patches) == pytest.approx(1.3)
    assert figure.get_suptitle() == "two rounds"
    longer = [*SPANS[:1], Span(0, 0, 1, 5.0, 9.0, 4.0)]  # the second round takes longer: the axis shows all of it
    assert plot_timeline(longer).axes[0].get_xlim()[1] > 4.0
    words = [t.get_text() for t in figure.legends[0].get_texts()]
    assert words == ["queued", "read", "compute", "write", "arrived, not used", "given up", "failed"]
    injected = plot_timeline(SPANS, outside="injected delay and start").legends[0].get_texts()
    assert [t.get_text() for t in injected] == ["injected delay and start", *words[1:]]
    assert image.imread(path).shape[0] > 200


def test_bars_of_a_used_attempt_follow_each_other():
    figure = plot_timeline(SPANS[:1])
    bars = sorted((p.get_x(), p.get_width()) for p in figure.axes[0].patches)
    assert np.allclose(bars, [(0.0, 0.2), (0.2, 0.3), (0.5, 0.4), (0.9, 0.1)])


def test_many_workers_stay_on_a_page_and_many_rounds_show_the_last():
    spans = [Span(slot, 0, r, r, r + 1.0, 1.0) for slot in range(600) for r in range(6)]
    figure = plot_timeline(spans)
    assert len(figure.axes) == 4
    assert figure.axes[0].get_title(loc="left") == "round 3"
    assert figure.get_size_inches()[1] <= 24
    assert len(figure.axes[0].get_yticks()) <= 40
    assert len(plot_timeline(spans, rounds=[0]).axes) == 1


def test_nothing_to_draw_is_said():
    with pytest.raises(InputError, match="nothing to draw"):
        plot_timeline([])
    with pytest.raises(InputError, match=r"rounds \[7\] have no spans"):
        plot_timeline(SPANS, rounds=[0, 7])


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r"serverless-gc\[plot\]"):
        plot_timeline(SPANS)
