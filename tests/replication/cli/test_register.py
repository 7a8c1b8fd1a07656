"""``vitrail register``: claims are fixed before the runs."""

import pytest

from replication.config.schema import as_yaml, read_yaml
from replication.plan.preregistration import read_registrations


@pytest.fixture
def tiny(checkout):
    """The folder of a paper with one empirical claim."""
    return checkout / "configs" / "papers" / "tiny"


def test_registering_writes_the_time_once_and_a_changed_margin_anew(tiny, vitrail):
    def register():
        return vitrail("register", "--scale", "laptop").out

    def registered():
        (claim,) = read_registrations(tiny)
        return claim

    assert "1 claim new or changed" in register()
    first = registered()
    assert (first.scale, first.claim) == ("laptop", "plain-is-better")
    assert "0 claims new or changed" in register()
    assert registered() == first
    claims = read_yaml(tiny / "claims.yaml")
    claims[0]["margin"] = 0.5
    (tiny / "claims.yaml").write_text(as_yaml(claims))
    assert "1 claim new or changed" in register()
    assert registered().digest != first.digest
