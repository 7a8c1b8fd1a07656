"""Results are verified if they hang together, none is missing, and none differs too much."""

import gzip
import json
import re
import shutil

import pytest
import yaml

from replication.config.schema import as_yaml
from replication.records.records import digest_once
from replication.report import ledger
from replication.report.ledger import RECORDS, published_folder, read_published
from tests.replication.cli.conftest import NUMBERS, SMALL


@pytest.fixture
def verify(vitrail):
    def run(scale="laptop", *flags):
        digest_once.cache_clear()
        return vitrail("verify", "--scale", scale, *flags)

    return run


def test_equal_results_are_verified_with_their_coverage(publish, verify):
    publish()
    done = verify()
    assert done.code == 0, done.out
    assert "3 of 3 numbers compared; 0 lie beyond" in done.out
    assert done.out.rstrip().endswith("Verified.")


def test_a_published_number_that_was_changed_fails(publish, verify):
    """As when a table is multiplied by 0.3."""
    catalog = publish()
    path = published_folder(catalog) / "tiny" / "table1.csv"
    path.write_text(path.read_text().replace("81.0", "24.3"))
    done = verify()
    assert done.code == 1
    assert f"{path} is not what the published records give" in " ".join(done.out.split())


def change_records(path, before, after):
    """Replace a word in published records."""
    text = gzip.decompress(path.read_bytes()).decode()
    assert before in text
    path.write_bytes(gzip.compress(text.replace(before, after).encode()))


def test_a_number_that_was_changed_in_its_published_record_fails(publish, verify):
    path = published_folder(publish()) / "tiny" / RECORDS
    change_records(path, "81.0", "24.3")
    done = verify()
    assert done.code == 1
    assert "is not what the published records give" in " ".join(done.out.split())


def test_a_node_that_was_changed_in_its_published_record_is_refused(publish, verify):
    path = published_folder(publish()) / "tiny" / RECORDS
    change_records(path, '"device":"cpu"', '"device":"cuda"')
    done = verify()
    assert done.code == 2
    assert f"{path}, line" in done.err


def test_tables_and_records_that_were_changed_together_are_not_as_they_were_committed(
    publish, verify, git
):
    publish()
    git("add", ".")
    git("commit", "--quiet", "-m", "Publish")
    assert verify().code == 0
    publish(ratio=0.6)
    done = verify()
    assert done.code == 1
    for name in ("table1.csv", RECORDS):
        place = f"results/published/laptop/tiny/{name} is not as it was committed"
        assert place in " ".join(done.out.split())


def test_a_number_that_was_changed_here_fails(publish, verify):
    catalog = publish()
    path = catalog.results / "tiny" / "table1.csv"
    path.write_text(path.read_text().replace("81.0", "5.0"))
    done = verify()
    assert done.code == 1
    record = catalog.results / "tiny" / "table1.json"
    assert f"{record} rendered another table1.csv than is here" in " ".join(done.out.split())
    assert "Not verified: altered: 1" in done.out


def test_weights_that_were_exchanged_fail(publish, verify):
    run = publish().paper("tiny").run("plain")
    run.weights.write_text("others")
    done = verify()
    assert done.code == 1
    assert f"names other weights than {run.weights} holds" in " ".join(done.out.split())


@pytest.mark.parametrize("name", ["tiny/table1.csv", f"tiny/{RECORDS}"])
def test_a_published_file_that_is_gone_fails(publish, verify, name, write_results):
    catalog = publish()
    (published_folder(catalog) / name).unlink()
    if name.endswith("csv"):  # another is left, or there would be nothing to compare
        other = published_folder(catalog) / "tiny" / "table9.csv"
        other.write_text("x")
    done = verify()
    assert done.code == 1
    assert "Not verified: altered" in done.out


def test_a_number_that_is_missing_here_fails(publish, make, verify):
    catalog = publish()
    catalog.paper("tiny").measurement("facts", None).path.unlink()
    make(NUMBERS, ratio=None)
    done = verify()
    assert done.code == 1
    assert "missing: 1" in done.out
    assert re.search(r"tiny_table1 +Plain +Ratio +0.5 +nan", done.out)


def test_only_what_is_asked_for_or_made_must_be_here(publish, verify, checkout):
    """What is published and not made here is counted, and not listed cell by cell."""
    catalog = publish()
    done = verify("laptop", "tiny_table1")
    assert (done.code, "3 of 3 numbers compared" in done.out) == (0, True)
    path = published_folder(catalog) / "tiny" / "table1.csv"
    other = path.with_name("table2.csv")
    other.write_text(
        path.read_text().replace(",table1,", ",table2,").replace(",Plain,", ",Published,")
    )
    for targets, not_made in (([], ["tiny_table2"]), (["tiny_table1"], [])):
        out = verify("laptop", *targets).out
        assert ("1 published artifact" in out, "tiny_table2  Published" in out) == (
            bool(not_made),
            False,
        )
        found = json.loads(verify("laptop", *targets, "--json").out)
        assert (found["not_made"], found["numbers"]["missing here"]) == (not_made, 0)
    done = verify("laptop", "tiny_table2")
    assert (done.code, "run snakemake tiny_table2 --config scale=laptop" in done.err) == (2, True)
    shutil.rmtree(checkout / "results" / "laptop")
    done = verify()
    assert (done.code, "run snakemake all --config scale=laptop" in done.err) == (2, True)


def test_only_the_published_tables_that_are_asked_for_are_rendered_again(
    publish, verify, monkeypatch
):
    folder = published_folder(publish())
    records = read_published(folder)
    asked = []
    render = ledger.rendered
    monkeypatch.setattr(
        ledger, "rendered", lambda node, *given: asked.append(node.target) or render(node, *given)
    )
    for targets in (None, {"tiny_table1"}, {"tiny_table2"}):
        asked.clear()
        assert not [*ledger.altered_publications(folder, records, targets)]
        assert asked == ([] if targets == {"tiny_table2"} else ["tiny_table1"])


def test_a_target_that_has_nothing_to_compare_is_refused(publish, verify, draw):
    catalog = publish()
    draw(catalog, catalog.paper("tiny").artifacts["table2"])  # of no measurement
    done = verify("laptop", "tiny_table2")
    assert (done.code, "tiny_table2: no number" in done.err) == (2, True)
    assert verify("laptop", "tiny_table1", "--published").code == 2


def test_emptied_exact_cells_fail(publish, verify):
    catalog = publish()
    path = catalog.results / "tiny" / "table1.csv"
    path.write_text(path.read_text().replace("0.5,", ","))
    assert verify().code == 1


def test_an_exact_number_that_differs_in_its_last_digit_fails(publish, make, verify):
    publish(ratio=0.5)
    make(NUMBERS, ratio=0.6)
    done = verify()
    assert done.code == 1
    assert "EXACT, FAILED" in done.out


def test_an_exact_number_that_rounds_alike_passes(publish, make, verify):
    publish(ratio=0.5)
    make(NUMBERS, ratio=0.50001)
    assert verify().code == 0


def test_numbers_within_the_spread_of_their_seeds_pass(publish, make, verify):
    publish()
    make({**NUMBERS, "plain": [80.5, 81.5, 82.5]})
    done = verify()
    assert done.code == 0, done.out
    assert "3 of 3 numbers compared; 0 lie beyond" in done.out


@pytest.mark.slow
def test_one_number_further_apart_than_chance_allows_fails(publish, make, verify):
    """One in twenty may lie beyond its 95 % interval, but not at any distance."""
    publish()
    make({**NUMBERS, "mixup": [68.0, 68.2, 68.4]})
    beyond = json.loads(verify("laptop", "--json").out)
    assert (beyond["verified"], beyond["numbers"]["differs"]) == (True, 1)
    make({**NUMBERS, "mixup": [30.0, 30.5, 31.0]})
    done = verify("laptop", "--json")
    assert done.code == 1
    assert [number["row"] for number in json.loads(done.out)["beyond_chance"]] == ["Mixup"]
    assert re.search(r"tiny_table1 +Mixup +Top-1 +71 +30.5 .* NOT BY CHANCE", verify().out)


def test_seeds_with_equal_numbers_have_the_largest_published_spread_of_their_table(
    publish, make, verify
):
    """Seeds that are all at 100 % do not say how far the next one may be."""
    publish({"plain": [100.0, 100.0, 100.0], "mixup": NUMBERS["mixup"]})
    make({"plain": [100.0, 99.5, 100.0], "mixup": NUMBERS["mixup"]})
    assert verify().code == 0
    make({"plain": [99.5, 99.5, 99.5], "mixup": NUMBERS["mixup"]})
    assert verify().code == 0
    make({"plain": [90.0, 90.0, 90.0], "mixup": NUMBERS["mixup"]})
    assert verify().code == 1


def test_a_single_run_may_differ_by_half_of_the_largest_number_of_its_table(
    publish, make, verify, checkout
):
    """The spread of another model, which may be trained longer, says nothing of it."""
    path = checkout / "configs" / "papers" / "tiny" / "scales" / "small.yaml"
    path.write_text(as_yaml({**SMALL, "runs": {"mixup": {"seeds": 3}}}))
    mixup = {"mixup": [30.0, 30.1, 29.9]}
    publish({"plain": [80.0], **mixup}, scale="small")
    make({"plain": [41.0], **mixup}, scale="small")
    told = json.loads(verify("small", "--json").out)
    assert (told["verified"], told["numbers"]["within"]) == (True, 1)
    make({"plain": [39.0], **mixup}, scale="small")
    done = verify("small", "--json")
    assert done.code == 1
    assert [number["row"] for number in json.loads(done.out)["beyond_chance"]] == ["Plain"]


def test_differences_of_rounding_are_none(publish, make, verify):
    """A number that float32's rounding decides is another on another machine."""
    publish({"plain": [1e-7], "mixup": [70.0]}, scale="small")
    make({"plain": [5e-7], "mixup": [70.00001]}, scale="small")
    told = json.loads(verify("small", "--json").out)
    assert (told["verified"], told["numbers"]["same"]) == (True, 3)


def test_only_changed_claims_are_listed_and_a_lost_one_fails(publish, make, verify, checkout):
    path = checkout / "configs" / "papers" / "tiny" / "claims.yaml"
    path.write_text(path.read_text().replace("small", "laptop"))
    publish()
    assert "plain-is-better" not in verify().out
    make({"plain": [60.0, 61.0, 62.0], "mixup": NUMBERS["mixup"]})
    done = verify()
    assert done.code == 1
    assert "Claims lost: tiny/plain-is-better." in done.out
    assert "claims lost: 1" in done.out


def test_a_claim_about_hardware_is_never_lost(publish, make, verify, checkout):
    """Another machine may be faster at something else."""
    folder = checkout / "configs" / "papers" / "tiny"
    claims, artifacts = folder / "claims.yaml", folder / "artifacts.yaml"
    claims.write_text(claims.read_text().replace("small", "laptop"))
    read = yaml.safe_load(artifacts.read_text())
    read["artifacts"]["table1"]["columns"][0]["hardware"] = True
    artifacts.write_text(as_yaml(read))
    publish()
    make({"plain": [60.0, 61.0, 62.0], "mixup": NUMBERS["mixup"]})
    told = json.loads(verify("laptop", "--json").out)
    assert [claim["claim"] for claim in told["claims"]] == ["tiny/plain-is-better"]
    assert told["claims_lost"] == []


def test_results_elsewhere_are_held_against_the_same_publication(publish, vitrail, tmp_path):
    publish()
    options = ["--scale", "laptop", "--published", "--results", str(tmp_path / "elsewhere")]
    done = vitrail("verify", *options)
    assert (done.code, done.out.splitlines()[-1]) == (0, "Verified.")


def test_copies_of_a_number_count_once(publish, verify):
    """Table 1 shows the plain run's accuracy in two rows, and the fact in three."""
    catalog = publish()
    assert len(catalog.paper("tiny").artifacts["table1"].measurements) == 3
    assert "3 of 3 numbers" in verify().out


def test_what_was_published_and_is_no_artifact_any_more_fails(publish, make, verify, checkout):
    publish()
    path = checkout / "configs" / "papers" / "tiny" / "artifacts.yaml"
    path.write_text(path.read_text().replace("  table1:", "  table7:"))
    path.with_name("reference").joinpath("table1.csv").unlink()
    path.with_name("claims.yaml").write_text("[]\n")
    catalog = make(NUMBERS)
    assert catalog.rendering(catalog.paper("tiny").artifacts["table7"]).is_file()
    done = verify()
    assert done.code == 1
    assert "tiny_table1 is published and is no artifact of this scale" in done.out


def test_the_worst_copy_of_a_number_counts(publish, verify):
    """The plain run's accuracy stands in two rows; one of the copies is emptied here."""
    catalog = publish()
    path = catalog.results / "tiny" / "table1.csv"
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "Plain again,Top-1" not in line]
    path.write_text("".join(kept))
    done = verify()
    assert done.code == 1
    assert "missing: 1" in done.out


def test_a_table_that_lacks_a_file_is_not_verified(publish, verify):
    catalog = publish()
    for path in catalog.results.glob("tiny/*.md"):
        path.unlink()
    assert verify().code == 2


def test_without_published_results_it_names_the_scales_that_have_some(publish, verify):
    done = verify("small")
    assert done.code == 2
    assert "results/published/small holds no results" in done.err
    publish(scale="laptop")
    assert "a scale that is published: laptop. " in verify("small").err


def test_what_is_found_is_told_as_json(publish, make, verify):
    catalog = publish()
    catalog.paper("tiny").measurement("facts", None).path.unlink()
    make({**NUMBERS, "plain": [40.0, 41.0, 42.0]}, ratio=None)
    done = verify("laptop", "--json")
    assert done.code == 1
    found = json.loads(done.out)
    assert not found["verified"]
    assert found["faults"]["missing"] == found["numbers"]["missing here"] == 1
    odd = {
        (cell["column"], cell["agreement"]): (cell["published"], cell["ours"])
        for cell in found["odd"]
    }
    assert odd["Ratio", "missing here"] == (0.5, None)
    assert odd["Top-1", "differs"] == (81, 41)


def test_verified_results_have_no_faults_as_json(publish, verify):
    publish()
    done = verify("laptop", "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["verified"]
    assert (found["faults"], found["odd"], found["numbers"]["same"]) == ({}, [], 3)


def test_what_is_published_is_verified_where_nothing_was_trained(publish, verify, checkout):
    folder = published_folder(publish())
    for name in ("runs", "results/laptop"):
        shutil.rmtree(checkout / name)
    done = verify("laptop", "--published")
    assert done.code == 0
    told = f"1 artifact in {folder}/, byte by byte what the 13 records"
    assert told in " ".join(done.out.split())
    path = folder / "tiny" / "table1.md"
    path.write_text(path.read_text().replace("81.0", "81.1"))
    done = verify("laptop", "--published", "--json")
    assert done.code == 1
    (fault,) = json.loads(done.out)["altered"]
    assert fault.startswith(str(path))


@pytest.mark.parametrize("name", ["report.md", "claims.csv", "models.csv", "effects.svg"])
def test_a_changed_report_is_found_also_if_it_is_committed(publish, verify, git, name):
    path = published_folder(publish()) / name
    git("add", "-A")
    git("commit", "-qm", "publish")
    assert verify("laptop", "--published").code == 0
    path.write_text(f"{path.read_text()}\n")
    git("commit", "-qam", "tamper")
    done = verify("laptop", "--published", "--json")
    assert done.code == 1
    (fault,) = json.loads(done.out)["altered"]
    assert fault.startswith(str(path))
