"""``vitrail power`` and ``vitrail register``: what claims can show, fixed before the runs."""

import json

import pytest

from replication.evidence.power import visible
from replication.plan.registration import read_registrations
from replication.plan.schema import as_yaml, read_yaml

SEEDS = 5  # of the scale that is planned


@pytest.fixture
def published(publish, checkout):
    """Two seeds of each recipe are published at one scale; another one has more seeds."""
    publish()
    scales = checkout / "configs" / "scales"
    settings = {"extends": "laptop", "description": "more seeds", "first_seed": 1000}
    (scales / "study.yaml").write_text(as_yaml({**settings, "seeds": SEEDS}))
    return checkout / "configs" / "papers" / "tiny"


def test_power_tells_the_half_width_that_more_seeds_give(published, vitrail):
    done = vitrail("power", "--scale", "study", "--from", "laptop", "--json")
    assert done.code == 0, done.err
    (claim,) = json.loads(done.out)
    assert claim["claim"] == "tiny/plain-is-better"
    assert claim["seeds"] == SEEDS
    assert claim["sees"] == pytest.approx(visible(claim["std"], SEEDS))
    assert claim["std"] > 0


def test_what_power_does_not_know_is_null(published, vitrail):
    """Of JSON's numbers none is NaN: Infinity or NaN would be refused by its readers."""
    told = vitrail("power", "--scale", "laptop", "--from", "smoke", "--json").out

    def refuse(name):
        raise AssertionError(name)

    (claim,) = json.loads(told, parse_constant=refuse)
    assert claim["std"] is None


def test_registering_writes_the_time_once_and_a_changed_margin_anew(published, vitrail):
    def register():
        return vitrail("register", "--scale", "study").out

    def registered():
        (claim,) = read_registrations(published)
        return claim

    assert "1 claim new or changed" in register()
    first = registered()
    assert (first.scale, first.claim) == ("study", "plain-is-better")
    assert "0 claims new or changed" in register()
    assert registered() == first
    claims = read_yaml(published / "claims.yaml")
    claims[0]["margin"] = 0.5
    (published / "claims.yaml").write_text(as_yaml(claims))
    assert "1 claim new or changed" in register()
    assert registered().digest != first.digest
