"""The forest plot draws each empirical effect once, in points, beside the printed one."""

import math

import numpy as np
import pandas as pd
import pytest

from replication.claims.effects import effects_of
from replication.report.forest import LOOKS, forest


def claim(name, **fields):
    defaults = {
        "paper": "shift",
        "id": name,
        "kind": "empirical",
        "status": "held",
        "left": 92.0,
        "right": 90.0,
        "unit": "%",
        "relation": "above",
        "margin": 0.0,
        "half_width": 0.5,
        "printed_effect": 1.0,
        "evidence": name,
    }
    return {**defaults, **fields}


CLAIMS = pd.DataFrame(
    [
        claim("a"),
        claim("again", evidence="a"),
        claim("share", paper="position", left=0.4, right=0.1, unit="", printed_effect=math.nan),
        claim("exact", kind="exact"),
        claim("lost", status="not run", evidence=None),
        claim("dark", status="not tested", left=80.0, half_width=math.nan),
    ]
)


def test_each_measured_empirical_effect_is_drawn_once_in_points():
    effects = effects_of(CLAIMS)
    assert effects["id"].tolist() == ["a", "share", "dark"]
    assert effects["effect"].tolist() == pytest.approx([2.0, 30.0, -10.0])
    assert effects["half_width"].tolist()[:2] == pytest.approx([0.5, 50.0])


def test_a_panel_has_the_effects_and_intervals_of_its_paper_in_their_colours():
    fig = forest(CLAIMS)
    panels = {axes.get_title(): axes for axes in fig.axes if axes.get_title()}
    assert set(panels) == {"shift", "position"}
    drawn = panels["shift"].containers  # an errorbar for each effect, the smallest first
    places = [container.lines[0].get_xydata()[0].tolist() for container in drawn]
    assert places == [[-10.0, 0.0], [2.0, 1.0]]
    assert [container.lines[0].get_color() for container in drawn] == [
        LOOKS["not tested"],
        LOOKS["held"],
    ]
    (bar,) = drawn[1].lines[2][0].get_segments()
    assert np.allclose(bar[:, 0], [1.5, 2.5])
    assert [label.get_text() for label in panels["shift"].get_yticklabels()] == ["dark", "a"]


def test_without_an_effect_it_says_so():
    (axes,) = forest(CLAIMS[CLAIMS["kind"] == "exact"]).axes
    assert axes.get_title() == "No empirical effect was measured."
