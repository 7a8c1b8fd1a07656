"""What was fixed before a run stays confirmatory, and what is changed after it does not."""

import csv

import pytest

from replication.plan import preregistration as registration
from replication.plan.catalog import load_catalog
from replication.plan.preregistration import REGISTRATIONS, Registered, read_registrations
from vitrail.errors import VitrailError

LONG_AGO = "2020-01-01T00:00:00+00:00"


@pytest.fixture
def paper(small_checkout):
    """The template's paper as its files are now; its only claim is an empirical one."""
    claims = small_checkout / "configs" / "papers" / "template" / "claims.yaml"
    claims.write_text(claims.read_text().replace("kind: exact", "kind: empirical"))
    return lambda: load_catalog(small_checkout, scale="full").paper("template")


def register(paper):
    return registration.register(paper.folder, paper.scale.name, paper.digests)


def change(paper, file, old, new):
    path = paper().folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def empirical(paper):
    return {claim.id for claim in paper().claims if claim.kind == "empirical"}


def put_back(paper):
    """Let the claims have been registered long ago."""
    rows = [row._replace(registered=LONG_AGO) for row in read_registrations(paper().folder)]
    with (paper().folder / REGISTRATIONS).open("w", newline="") as file:
        csv.writer(file).writerows([Registered._fields, *rows])


def test_without_a_file_nothing_is_registered(paper):
    assert paper().registered is None


def test_every_empirical_claim_is_registered(paper):
    names = empirical(paper)
    assert names
    assert set(register(paper())) == names
    assert paper().registered.keys() == names


def test_what_is_unchanged_keeps_its_time(paper):
    register(paper())
    put_back(paper)
    assert register(paper()) == []
    assert set(paper().registered.values()) == {LONG_AGO}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("recipes.yaml", "lr: 1.0e-2", "lr: 2.0e-2"),
        ("recipes.yaml", "epochs: 1", "epochs: 2"),
        ("claims.yaml", "relation:", "margin: 0.5\n  relation:"),
    ],
)
def test_a_changed_recipe_or_margin_ends_the_registration_until_it_is_registered_again(
    paper, file, old, new
):
    names = empirical(paper)
    register(paper())
    put_back(paper)
    change(paper, file, old, new)
    changed = names - paper().registered.keys()
    assert changed
    assert set(register(paper())) == changed
    assert all(paper().registered[name] > LONG_AGO for name in changed)


def test_words_do_not_count(paper):
    register(paper())
    before = paper().registered
    change(paper, "claims.yaml", "statement: ", "statement: In other words, ")
    assert paper().registered == before


def test_a_scale_has_its_own(paper, small_checkout):
    register(paper())
    laptop = load_catalog(small_checkout, scale="laptop").paper("template")
    assert laptop.registered is None
    full = read_registrations(paper().folder)
    register(laptop)
    assert full == [row for row in read_registrations(paper().folder) if row.scale == "full"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("digest", "hash"),
        lambda text: text[: text.rindex(",")],
        lambda text: text[: text.rindex(",") + 1],
        lambda text: text + '"',
        lambda text: "",
    ],
    ids=["columns", "field", "empty field", "quote", "empty"],
)
def test_a_damaged_file_is_refused(paper, damage):
    register(paper())
    path = paper().folder / REGISTRATIONS
    path.write_text(damage(path.read_text()))
    with pytest.raises(VitrailError, match="restore it with git checkout"):
        print(paper().registered)
