import json

import pytest

from replication.report.ledger import published_folder

PLAIN, MIXUP, RATIO = ("Plain", "Top-1"), ("Mixup", "Top-1"), ("Plain", "Ratio")


def test_nothing_done_is_said_with_the_command_that_does_it(vitrail):
    done = vitrail("status", "--scale", "small")
    assert done.code == 0
    assert "snakemake all --config scale=small" in done.out
    assert "3 missing" in done.out


@pytest.mark.parametrize(("scale", "submitted"), [("small", False), ("full", True)])
def test_before_the_command_that_makes_all_stands_the_one_that_prices_it(vitrail, scale, submitted):
    (told,) = vitrail("status", "--scale", scale).out.split("No results yet")[1:]
    assert told.index(f"vitrail plan all --scale {scale}") < told.index("snakemake all")
    assert ("--profile slurm" in told) == submitted


def test_a_shared_run_counts_once(vitrail, fine_tuning):
    assert "Runs at scale small: 3 missing" in vitrail("status", "--scale", "small").out


def test_artifacts_are_done_partly_or_missing(vitrail, write_results):
    write_results({PLAIN: {"verdict": "within"}, RATIO: {"verdict": "exact"}})
    out = vitrail("status", "--scale", "small").out
    assert "tiny_table1  done" in out
    assert "Not begun: 1 of 2 tables and figures." in out
    write_results({PLAIN: {"verdict": "within"}, MIXUP: {"verdict": "not_run", "measured": ""}})
    assert "tiny_table1  partly" in vitrail("status", "--scale", "small").out


def test_claims_that_held_and_are_contrary_are_named(vitrail, write_results):
    of_seeds = {"std": 0.1, "n_seeds": 3}
    write_results({PLAIN: {"measured": 2.0, **of_seeds}, MIXUP: {"measured": 1.0, **of_seeds}})
    assert "held       tiny/plain-is-better" in vitrail("status", "--scale", "small").out
    write_results({PLAIN: {"measured": 1.0, **of_seeds}, MIXUP: {"measured": 2.0, **of_seeds}})
    assert "contrary   tiny/plain-is-better" in vitrail("status", "--scale", "small").out


def test_the_report_is_named_and_the_published_one(vitrail, catalog):
    page, published = (
        catalog().reports[1],
        published_folder(catalog()) / catalog().reports[0].name,
    )

    def told():
        out = " ".join(vitrail("status", "--scale", "small").out.split())
        record = json.loads(vitrail("status", "--scale", "small", "--json").out)
        assert f"Report, all on one page: {page}" in out
        assert (f"{page} (not yet: snakemake all --config scale=small)" in out) == (
            not page.is_file()
        )
        assert (str(published) in out) == published.is_file()
        return record["reports"]

    assert told() == []
    for number, report in enumerate((page, published), start=1):
        report.parent.mkdir(parents=True)
        report.write_text("# Results\n")
        assert told() == [str(page), str(published)][:number]


def test_a_claim_on_an_unknown_row_is_refused_though_nothing_is_built(vitrail, checkout):
    claims = checkout / "configs" / "papers" / "tiny" / "claims.yaml"
    claims.write_text(claims.read_text().replace("row: Mixup", "row: Mixpu"))
    done = vitrail("status", "--scale", "laptop")
    assert done.code == 2
    assert "'Mixpu' is unknown; did you mean 'Mixup'?" in done.err


def test_what_is_older_than_its_code_is_named(vitrail, make, rewrite):
    numbers = {"plain": [80.0], "mixup": [70.0]}
    make(numbers, scale="small")
    assert "older code" not in vitrail("status", "--scale", "small").out
    catalog = make(numbers, scale="small", code="0123456789abcdef")
    out = vitrail("status", "--scale", "small").out
    assert "2 runs trained by older code" in out
    assert f"tiny/{catalog.paper('tiny').run('plain').home.name}" in out
    path = catalog.paper("tiny").measurement("facts", None).path
    rewrite(path, lambda content: content.update(code="0123456789abcdef"))
    out = " ".join(vitrail("status", "--scale", "small").out.split())
    again = f"snakemake tiny_table1 --forcerun {path} --config scale=small"
    assert f"1 record to make again: {path} was made by other code than is here: {again}" in out


def test_json_has_the_counts(vitrail, write_results):
    write_results({PLAIN: {"measured": 2.0, "verdict": "within"}, MIXUP: {"measured": 1.0}})
    record = json.loads(vitrail("status", "--scale", "small", "--json").out)
    assert record["scale"] == "small"
    assert record["artifacts"]["tiny_table1"]["state"] == "done"
    assert record["artifacts"]["tiny_table1"]["verdicts"]["within"] == 1
    assert record["runs"]["missing"] == 3
    assert record["claims"]["empirical"] == {"undecided": 1}  # one run each: no interval


def test_a_damaged_record_has_a_remedy_that_is_written_out_and_hides_no_claim(vitrail, make):
    catalog = make({"plain": [75.0, 76.0, 77.0], "mixup": [70.0, 71.0, 72.0]})
    record = catalog.paper("tiny").run("plain").record
    record.write_text("")
    for arguments in (["status"], ["why", "tiny_table1", "Plain", "Top-1"]):
        done = vitrail(*arguments, "--scale", "laptop")
        assert done.code == 0
        assert f"--forcerun {record} --config scale=laptop" in " ".join(done.out.split())
        assert "TARGET" not in done.out
    assert "tiny/plain-is-better" in vitrail("status", "--scale", "laptop").out


def test_a_damaged_record_is_told_before_anything_was_measured_of_it(vitrail, make):
    catalog = make({"plain": [75.0, 76.0, 77.0], "mixup": [70.0, 71.0, 72.0]})
    record = catalog.paper("tiny").run("plain").record
    for measurement in catalog.runs_root.rglob("measurements/*.json"):
        measurement.unlink()
    assert str(record) not in vitrail("status", "--scale", "laptop").out
    record.write_text("")
    assert f"--forcerun {record}" in " ".join(vitrail("status", "--scale", "laptop").out.split())
