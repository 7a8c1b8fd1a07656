"""What a paper resolves to at a scale, and that every line of a scale does something."""

import copy
import functools
import re
from pathlib import Path

import pytest
import yaml

from replication.config.paper import PaperScale, RecipesFile
from replication.config.schema import merge, parse, place_of, read_yaml
from replication.config.settings import Scale, known_scales
from replication.plan.catalog import load_catalog
from tests.conftest import ROOT, catalog_of
from vitrail.errors import VitrailError

RECIPES = sorted(ROOT.glob("configs/papers/*/recipes.yaml"))
OF_A_PAPER = sorted(ROOT.glob("configs/papers/*/scales/*.yaml"))
OF_ALL = sorted(ROOT.glob("configs/scales/*.yaml"))
TEXT = "description"


def named(path):
    return str(path.relative_to(ROOT / "configs"))


def without_each_line(written):
    """Yield a file's content without one value, or without one of several patterns, for each."""
    for key, value in written.items():
        if not isinstance(value, dict) or not value:
            yield key, {other: written[other] for other in written if other != key}
            continue
        for line, changed in without_each_line(value):
            yield f"{key}: {line}", {**written, key: changed}
        patterns = key.split(",")
        for pattern in patterns if len(patterns) > 1 else ():
            rest = ",".join(other for other in patterns if other != pattern)
            yield (
                f"{pattern.strip()} of '{key}'",
                {rest if name == key else name: value for name, value in written.items()},
            )


def resolved(paper):
    """Yield all that a scale decides of a paper's nodes, but for its recipes."""
    yield paper.scale.device, paper.scale.workers, paper.scale.checkpoint_minutes
    yield paper.overlay.lists_changes, paper.scale.first_seed, paper.artifact_names
    yield [name for name in paper.recipes if paper.without(name)]
    yield paper.searches.groups, {name: paper.searches.covering(name) for name in paper.recipes}
    for name in paper.artifacts_file.measures:
        spec = paper.measure(name)
        stand_ins = [paper.stand_ins.get(dataset, dataset) for dataset in spec.datasets]
        yield spec.args, spec.seeds, stand_ins
    yield from map(paper.run_settings, (*paper.recipes, None))
    yield paper.overlay.untested


@functools.cache
def resolved_as_written(paper):
    return [*resolved(paper)]


@functools.cache
def values_as_written(paper, name):
    return paper._written(name)


@functools.cache
def recipe_as_written(paper, name):
    """With the rate that is written, which is trained until a search has found another."""
    return paper.searched(name)[0].canonical_json()


@functools.cache
def papers_of(scale):
    return [*catalog_of(scale).papers.values()]


@functools.cache
def extended_papers_of(scale):
    """Some lines concern rows that the papers lack."""
    return [*catalog_of(scale).extended().papers.values()]


def replaced(paper, **attributes):
    """A copy of a paper of which some attributes differ."""
    other = copy.copy(paper)
    vars(other).pop("searches", None)  # cached
    vars(other).update(attributes)
    return other


def is_dead(change, papers):
    """Tell whether no paper resolves otherwise once it is changed; an error is a difference."""
    try:
        return not any(differs(change(paper), paper) for paper in papers)
    except VitrailError:
        return False


def differs(other, paper):
    pairs = zip(resolved(other), resolved_as_written(paper), strict=True)
    return any(after != before for after, before in pairs) or any(
        other.searched(name)[0].canonical_json() != recipe_as_written(paper, name)
        for name in other.recipes
        if other._written(name) != values_as_written(paper, name)  # else the recipes are equal, too
    )


@pytest.mark.slow
@pytest.mark.parametrize("file", OF_A_PAPER, ids=named)
def test_no_line_of_a_papers_scale_is_dead(file):
    papers = [
        paper
        for paper in dict.fromkeys([*papers_of(file.stem), *extended_papers_of(file.stem)])
        if paper.scale_path == file
    ]
    assert papers

    def with_content(content):
        overlay = parse(PaperScale, content, str(file))
        return lambda paper: replaced(paper, overlay=overlay)

    lines = without_each_line(read_yaml(file))
    dead = [line for line, content in lines if is_dead(with_content(content), papers)]
    assert dead == []


@pytest.mark.parametrize("file", RECIPES, ids=named)
def test_no_delta_of_a_papers_recipes_is_dead(file):
    (paper,) = (paper for paper in papers_of("full") if paper.recipes_path == file)
    written = read_yaml(file)

    def with_deltas(deltas):
        file = parse(RecipesFile, {**written, "deltas": deltas}, "recipes.yaml")
        return lambda paper: replaced(paper, recipes=file.expand("recipes.yaml"))

    lines = without_each_line(written.get("deltas", {}))
    assert [line for line, deltas in lines if is_dead(with_deltas(deltas), [paper])] == []


@pytest.mark.parametrize("file", OF_ALL, ids=named)
def test_no_line_of_a_scale_is_dead(file):
    papers = papers_of(file.stem)

    def with_content(content):
        written = merge(content, {"name": file.stem})
        return lambda paper: replaced(paper, scale=parse(Scale, written, str(file)))

    lines = without_each_line(read_yaml(file))
    dead = [
        line for line, content in lines if line != TEXT and is_dead(with_content(content), papers)
    ]
    assert dead == []


def write(checkout, name, text):
    path = checkout / "configs" / "papers" / "template" / "scales" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def epochs(checkout, scale):
    paper = load_catalog(checkout, scale=scale).paper("template")
    return {name: paper.recipe(name).schedule.epochs for name in paper.recipes}


def test_a_scales_patterns_are_merged_in_the_order_of_the_file(small_checkout):
    changes = '"*": {schedule: {epochs: 3}}, "n*": {schedule: {epochs: 4}}'
    write(small_checkout, "laptop", f"recipes: {{{changes}}}")
    assert epochs(small_checkout, "laptop") == {"narrow": 4, "wide": 3}
    assert epochs(small_checkout, "full") == {"narrow": 1, "wide": 1}


def test_seeds_resources_and_arguments_are_merged_pattern_by_pattern(small_checkout):
    write(
        small_checkout,
        "laptop",
        "runs: {'*': {seeds: 2, resources: {train: {mem_mb: 7}}}, wide: {seeds: 5}}\n"
        "measures: {'*': {args: {a: {b: 1}}}, accuracy: {args: {a: {c: 2}}, seeds: 1}}",
    )
    paper = load_catalog(small_checkout, scale="laptop").paper("template")
    assert (
        paper.run_settings("narrow").seeds,
        paper.run_settings("wide").seeds,
        paper.run_settings().seeds,
    ) == (2, 5, 2)
    assert paper.run_settings("wide").resources_of("train").mem_mb == 7
    assert paper.run_settings("wide").resources_of("evaluate") == paper.scale.resources_of(
        "evaluate"
    )
    assert (paper.measure("accuracy").args, paper.measure("accuracy").seeds) == (
        {"a": {"b": 1, "c": 2}}, 1
    )  # fmt: skip
    assert paper.measure("parameters").args == {"a": {"b": 1}}


def places(values):
    """Yield key, value and place of all that is written of a recipe."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from places(value)
        else:
            yield key, value, place_of(values, key)


@functools.cache
def words_of(place):
    """The values and keys in the line of ``file:line``, without its comment."""
    file, _, number = place.rpartition(":")
    line = Path(file).read_text().splitlines()[int(number) - 1].partition(" #")[0]
    words = re.findall(r'"[^"]*"|[^\s,{}\[\]"]+', line)
    return [yaml.safe_load(word.removesuffix(":")) for word in words if word[0] not in "#&*"]


@pytest.mark.parametrize("scale", known_scales(ROOT))
def test_the_line_that_is_named_for_a_value_contains_it(scale):
    for paper in papers_of(scale):
        for name in paper.recipes:
            for key, value, place in places(paper.values(name)):
                if key in ("task", "version") or key.endswith(".py") or "searched.csv" in place:
                    continue  # of which the next test asks, and test_searches
                words = words_of(place)
                stands_in = key == "dataset" and "/scales/" in place
                assert key in words or stands_in, (name, key, place)
                assert value in words or isinstance(value, list), (name, key, place)


def test_what_no_line_sets_names_its_origin():
    (paper,) = (paper for paper in papers_of("laptop") if paper.folder.name == "shift")
    values = paper.values("a_swin_upernet-ade20k-standard")
    origin = {key: place for key, _, place in places(values)}
    assert origin["version"] == "configs/datasets.yaml: the version of patchwork"
    for file in ("swin_t_upernet_ade20k_circular.py", "a_swin_t_upernet_ade20k_circular.py"):
        assert origin[file] == f"configs/segmentation/{file}"
    assert origin["task"].endswith("recipes.yaml: the recipes '{segmenter}'")
    assert place_of(paper.values("swin_t-cifar10-circular"), "task") is None


def test_a_papers_own_stand_in_goes_before_that_of_the_scale(small_checkout):
    def dataset():
        paper = load_catalog(small_checkout, scale="laptop").paper("template")
        return paper.recipe("narrow").data.dataset, place_of(
            paper.values("narrow")["data"], "dataset"
        )

    scale = small_checkout / "configs" / "scales" / "laptop.yaml"
    scale.write_text("description: small\ndevice: cpu\ndatasets: {digits: cifar10}\n")
    assert dataset() == ("cifar10", f"{scale}:3")
    write(small_checkout, "laptop", "datasets: {digits: svhn}")
    assert dataset()[0] == "svhn"
    write(small_checkout, "laptop", "datasets: {digits: nothing}")
    with pytest.raises(VitrailError, match="'nothing'"):
        dataset()


def test_a_table_says_what_the_scale_changes_where_the_scale_asks_for_it(small_checkout):
    """Each value once, and nothing where nothing is changed."""

    def note(text):
        write(small_checkout, "laptop", text)
        paper = load_catalog(small_checkout, scale="laptop").paper("template")
        return paper.artifacts["table1"].note

    change = "recipes: {wide: {schedule: {epochs: 3}, ema_decay: 0.9}}"
    assert "Changed" not in note(change)
    said = "Changed at this scale: schedule.epochs 3 (paper: 1); ema_decay 0.9 (paper: none)."
    assert note(f"lists_changes: true\n{change}").endswith(said)
    of_all = note("lists_changes: true\nrecipes: {'*': {schedule: {epochs: 4}}}")
    assert of_all.endswith("Changed at this scale: schedule.epochs 4 (paper: 1).")
    assert "Changed" not in note("lists_changes: true")


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        ("task: clasification", "'clasification' is unknown; did you mean 'classification'"),
        ("data: {dataset: [digits]}", r"data\.dataset is \['digits'\]; give the name of one"),
    ],
)
def test_a_task_or_a_dataset_that_is_none_is_one_sentence(small_checkout, delta, said):
    write(small_checkout, "laptop", f"recipes: {{wide: {{{delta}}}}}")
    with pytest.raises(VitrailError, match=rf"recipe 'wide' at scale 'laptop'.*{said}"):
        load_catalog(small_checkout).paper("template").recipe("wide")


def test_a_dataset_is_named_in_place_of_another_unless_it_only_splits_the_same_images():
    replaced = catalog_of("small").paper("position").names_replaced
    assert replaced["flowers102"] == "Flowers-102"  # has fewer training images than flower-data
    assert replaced["tiny-imagenet-20"] == "Imagenette"
    assert "eurosat" not in replaced
