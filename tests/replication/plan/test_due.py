"""What an edit makes due: exactly the numbers that depend on it, of all papers at laptop scale.

Each row edits one file in a copy of sources and configuration, plans there, and compares with the
plan before. A process of its own plans where the code that plans is edited, and where modules are
moved.
"""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from replication.config.schema import read_mapping
from replication.plan import code_digest, module_digest
from replication.plan.catalog import load_catalog

NOTHING = frozenset()


class Changed(NamedTuple):
    """What has another identity than before, or is planned no more: records, folders of runs.

    The report has all renderings as inputs, so it is due with each of them, too.
    """

    measurements: frozenset[str]
    trainings: frozenset[str]
    older: frozenset[str]
    renderings: frozenset[str]
    reports: frozenset[str] = NOTHING


NONE = Changed(NOTHING, NOTHING, NOTHING, NOTHING)


def planned(checkout):
    """The identities of all that is planned in a checkout, by kind."""
    from replication.plan.catalog import load_catalog
    from replication.records.records import code_due

    catalog = load_catalog(checkout)

    def identities(records):
        return {str(record): catalog.node(record).identity for record in records}

    return {
        "measurements": identities(catalog.measurements),
        # No training is there, so each is due by the code now.
        "trainings": {
            str(record): f"{node.identity} {code_due(node)}"
            for record in catalog.runs
            for node in [catalog.node(record)]
        },
        "codes of trainings": {
            str(run.folder): catalog.node(record).code for record, run in catalog.runs.items()
        },
        "renderings": identities(catalog.renderings),
        "reports": identities([catalog.report]),
    }


def planned_by_its_own_code(checkout):
    """As `planned`, in a process that imports the code of the checkout."""
    program = [
        *("import json", "from pathlib import Path", inspect.getsource(planned)),
        "print(json.dumps(planned(Path())))",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(program)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def forget_the_sources():
    """Let the next plan read the modules again."""
    for module in (module_digest, code_digest):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


@pytest.fixture(scope="module")
def checkout(root, tmp_path_factory):
    """A copy of sources and configuration."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("src", "configs"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(root / name, folder / name, ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def before(checkout):
    """The plan of the copy before any edit, whose modules are then read instead of our own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module_digest, "SOURCES", checkout / "src")
        forget_the_sources()
        yield planned(checkout)
    forget_the_sources()


@pytest.fixture
def edit(checkout):
    """A function: replace a text of a file that has it once; the files are put back."""
    edited = []

    def edit(name, old, new):
        path = checkout / name
        text = path.read_text(encoding="utf-8")
        edited.append((path, text))
        assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new), encoding="utf-8")
        if path.is_relative_to(checkout / "src"):
            forget_the_sources()

    yield edit
    for path, text in reversed(edited):
        path.write_text(text, encoding="utf-8")
    if any(path.is_relative_to(checkout / "src") for path, _ in edited):
        forget_the_sources()


@pytest.fixture
def after(checkout, before, edit):
    """A function: edit a file and return what has changed.

    `no_more` measurements are then planned no more.
    """

    def after(name, old, new, no_more=0):
        edit(name, old, new)
        now = planned(checkout)
        fewer = {kind: len(before[kind]) - len(now[kind]) for kind in before}
        assert fewer == {**dict.fromkeys(before, 0), "measurements": no_more}
        return Changed(
            *(
                frozenset(name for name, was in before[kind].items() if now[kind].get(name) != was)
                for kind in before
            )
        )

    return after


@pytest.fixture(scope="module")
def catalog(root):
    return load_catalog(root)


IDLE = [
    ("src/vitrail/errors.py", "did you mean '{", "do you mean '{"),  # suggestion
    ("src/vitrail/files.py", "cannot lock {path}", "no lock of {path}"),  # lock
    (
        "src/replication/training/model_factory.py",
        "device '{name}' is unknown",
        "there is no device '{name}'",
    ),  # message of raise
    (
        "src/vitrail/shift/polyphase.py",
        '"""Return the place of the maximum of',
        '"""The place of the largest of',
    ),  # docstring
    (
        "src/vitrail/shift/polyphase.py",
        "def roll(x: Tensor, offset: Tensor) -> Tensor:",
        'def roll(x: "Tensor", offset: "Tensor") -> "Tensor":',
    ),  # types of a function
    (
        "src/replication/config/recipe.py",
        "    hflip: float = Field(0.5, ge=0, le=1)\n    vflip",
        "    sharpness: float = Field(0.0, ge=0)\n"
        "    hflip: float = Field(0.5, ge=0, le=1)\n    vflip",
    ),  # optional field of a recipe
    (
        "src/replication/config/settings.py",
        'description="minutes, at most',
        'description="in minutes, at most',
    ),  # description of a setting
    (
        "src/replication/config/settings.py",
        "    threads: PositiveInt = 1\n",
        '    threads: PositiveInt = 1\n    qos: str = ""\n',
    ),  # qos
    (
        "src/replication/datasets/download.py",
        "WAITS = (2.0, 4.0",
        "WAITS = (1.0, 4.0",
    ),  # first retry of a download
    (
        "src/replication/training/training_log.py",
        "class TrainingLog:",
        "class TrainingLog:\n    words = 3\n",
    ),  # what a training tells
    (
        "configs/datasets.yaml",
        "mean: [0.4330, 0.3819, 0.2964]",
        "mean: [0.5, 0.3819, 0.2964]",
    ),  # mean of a dataset that others stand in for
    (
        "configs/papers/octic/scales/workstation.yaml",
        "optimizer: {lr: 5.3e-4}",
        "optimizer: {lr: 5.4e-4}",
    ),  # value of another scale
    (
        "configs/datasets.yaml",
        "title: handwritten digits on dimmed photographs, of twenty scans of each class",
        "title: digits on dimmed photographs, of twenty scans of each class",
    ),  # title of a dataset
    (
        "configs/segmentation/swin_t_upernet_ade20k_circular.py",
        '"""Swin-T + UperNet under circular shifts',
        '"""UperNet on Swin-T under circular shifts',
    ),  # docstring of a segmenter's configuration
    (
        "configs/segmentation/swin_t_upernet_ade20k_circular.py",
        '    # Printed as "Resize", as is',
        '    # Printed as "Resize" like',
    ),  # comment in a segmenter's configuration
]
"""Edits that change no number: of messages, docstrings, types, what a training tells, titles."""


@pytest.mark.slow
def test_nothing_is_due_and_no_run_is_older_than_its_code(checkout, before, edit):
    """All at once: identities are hashes, so no edit hides another."""
    for change in IDLE:
        edit(*change)
    assert planned_by_its_own_code(checkout) == before


MOVED = {
    "replication.measures.consistency": "vitrail.shift.steadiness",  # measures
    "replication.papers.shift.figures": "vitrail.shift.drawings",  # draws
    "replication.images.transforms": "vitrail.measures.views",  # is imported by most
    "vitrail.position.vit": "vitrail.position.embedded",  # registers models
    "vitrail.errors": "vitrail.mistakes",  # does not count
    "replication.datasets.arrays": "replication.training.archives",  # opens datasets
    "replication.training.loop": "replication.training.epochs",  # trains
    "replication.report.formatting": "replication.report.formats",  # renders
}
RENAMED = {
    # measures, and is called by others
    "replication.measures.consistency:circular_consistency": "agreement_when_turned",
    "replication.papers.shift.jumps:grid_jumps": "jumps_between_grids",  # measures
    "replication.papers.variance.measures:position_maps": "maps_of_positions",  # measures
    "vitrail.shift.geometry:roll_image": "moved_image",  # is imported by models
    "replication.images.transforms:eval_transform": "judging_transform",  # is imported by most
}


@pytest.mark.slow
def test_moving_modules_and_renaming_functions_makes_nothing_due(checkout, before, tmp_path):
    """All at once, each with its uses in sources and configurations."""
    folder = shutil.copytree(checkout, tmp_path / "checkout")
    place = {name: folder / "src" / f"{name.replace('.', '/')}.py" for name in modules_named()}
    module = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in MOVED))
    found = set()
    for path in (path for suffix in ("py", "yaml") for path in folder.rglob(f"*.{suffix}")):
        before_name = r"(?<=:)\b" if path.suffix == ".yaml" else r"\b"
        written = text = path.read_text(encoding="utf-8")
        found.update(module.findall(written))
        for function, new in RENAMED.items():
            defining, _, old = function.partition(":")
            # Another module may have a function of the same name, which keeps it.
            if path == place[defining] or re.search(rf"\b{re.escape(defining)}\b", written):
                text, times = re.subn(rf"{before_name}{old}\b", new, text)
                if times and path != place[defining]:
                    found.add(function)
        path.write_text(module.sub(lambda name: MOVED[name[0]], text), encoding="utf-8")
    assert found == {*MOVED, *RENAMED}
    for old, new in MOVED.items():
        place[old].rename(place[new])
    assert planned_by_its_own_code(folder) == before


def modules_named():
    """The modules that are moved, before and after, and those whose functions are renamed."""
    return {*MOVED, *MOVED.values(), *(function.partition(":")[0] for function in RENAMED)}


REPORT = frozenset({"results/laptop/report.json"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "  relation: equal\n  right: 100\n  margin: 0.05\n",
            "  relation: above\n  right: 99\n  margin: 0.05\n",
        ),
        (
            "&kinds [{k: c, shift: Circular, shifts: circular",
            "&kinds [{k: c, shift: Circular, shifts: cyclic",
        ),
    ],
    ids=["claim", "choices"],
)
def test_a_claim_concerns_the_report_alone(after, old, new):
    changed = after("configs/papers/shift/claims.yaml", old, new)
    assert changed == NONE._replace(reports=REPORT)


@pytest.mark.slow
def test_a_shared_value_concerns_the_artifacts_that_repeat_it_and_the_report(after, catalog):
    """None of its numbers is measured again, as the value says how a number is called."""
    old = "&change {key: change, metric: change of accuracy"
    changed = after("configs/papers/octic/artifacts.yaml", old, old.replace("change of", "loss of"))
    written = read_mapping(catalog.root / "configs/papers/octic/artifacts.yaml")["artifacts"]
    repeated = '"key": "change", "metric": "change of accuracy"'
    naming = {name for name, artifact in written.items() if repeated in json.dumps(artifact)}
    shown = {
        str(path)
        for path, artifact in catalog.renderings.items()
        if artifact.paper == "octic" and artifact.name in naming
    }
    assert 0 < len(shown) < len(catalog.paper("octic").artifacts)
    assert changed == NONE._replace(renderings=frozenset(shown))
    assert shown <= set(map(str, catalog.report_node.inputs))


@pytest.mark.slow
def test_a_caption_concerns_its_own_artifact(after):
    old = "Efficiency gains of D8 over the ordinary ViT of the same shape"
    changed = after("configs/papers/octic/artifacts.yaml", old, "Gains of D8 over the ViT")
    assert changed == NONE._replace(renderings=frozenset({"results/laptop/octic/table1.json"}))


def of_runs(catalog, condition):
    """Those due when the code, or the dataset, of some runs changes: their folders, records."""
    runs = [run for run in catalog.runs.values() if condition(run)]
    assert 0 < len(runs) < len(catalog.runs)
    return {str(run.folder) for run in runs}, {str(run.record) for run in runs}


def of_measurements(catalog, condition):
    paths = {
        str(path) for path, measurement in catalog.measurements.items() if condition(measurement)
    }
    assert 0 < len(paths) < len(catalog.measurements)
    return paths


def figures_of(catalog, *modules):
    """The figures that some modules draw, which import what they illustrate."""
    drawn = {
        str(path): rendering.draw
        for path, rendering in catalog.renderings.items()
        if rendering.draw
    }
    return {path for path, draw in drawn.items() if draw.partition(":")[0] in modules}


def names_adaptive(recipe):
    """Whether a recipe is of a model, or a segmenter, that selects grids or moves its images."""
    return recipe.model.name.startswith(("a_", "canonical_", "harmonic_", "polyphase_"))


OWN = [f"replication.papers.shift.{name}:" for name in ("code_examples", "figure_data", "measures")]
UNPOOLS = "replication.measures.segmentation_equivariance:"
"""A measure of all segmenters, which imports what puts features back."""


@pytest.mark.slow
def test_the_selection_of_grids_concerns_the_models_that_select(after, catalog):
    changed = after(
        "src/vitrail/shift/polyphase.py",
        "place = energies.flatten(1).argmax(dim=1)",
        "place = energies.flatten(1).argmin(dim=1)",
    )
    due = of_measurements(
        catalog,
        lambda measurement: (
            measurement.paper == "shift"
            and (
                (measurement.on and names_adaptive(measurement.on.recipe))
                or '"a_' in json.dumps(measurement.args)
                or measurement.function.startswith((*OWN, UNPOOLS))
            )
        ),
    )
    older, records = of_runs(catalog, lambda run: names_adaptive(run.recipe))
    assert changed == Changed(
        due, records, older, figures_of(catalog, "replication.papers.shift.figures")
    )


@pytest.mark.slow
def test_an_embedding_concerns_the_models_of_its_paper(after, catalog):
    changed = after(
        "src/vitrail/position/embeddings/rope.py",
        "return torch.cat([x[:, :, :prefix], turned], dim=2)",
        "return torch.cat([x[:, :, :prefix], -turned], dim=2)",
    )
    due = of_measurements(
        catalog,
        lambda measurement: (
            measurement.paper == "position"
            and not measurement.function.startswith("replication.measures.pixel_baselines:")
        ),
    )
    older, records = of_runs(catalog, lambda run: run.recipe.model.name == "position_vit")
    assert changed == Changed(
        due, records, older, figures_of(catalog, "replication.papers.position.figures")
    )


LOOKING = {
    *(f"replication.measures.{name}" for name in ("accuracy", "consistency", "preprocessing")),
    "replication.papers.octic.rotation",
    *(f"replication.papers.octic.dinov2.{name}" for name in ("image_probes", "patch_probes")),
    *(f"replication.papers.position.{name}" for name in ("kernel_shap", "measures")),
    "replication.papers.shift.figure_data",
    "replication.papers.variance.measures",
    # The transforms of a training are among its hyperparameters.
    *("replication.measures.hyperparameters", "replication.papers.octic.dinov2.training_cost"),
}
"""Measures that look at images through the library's views; mmseg's views are its own."""


@pytest.mark.slow
def test_the_views_of_images_concern_whatever_looks_at_images(after, catalog):
    changed = after("src/replication/images/transforms.py", "margin=margin,", "margin=0,")
    due = of_measurements(
        catalog, lambda measurement: measurement.function.partition(":")[0] in LOOKING
    )
    older, records = of_runs(catalog, lambda run: run.recipe.task != "segmentation")
    drawn = figures_of(
        catalog, "replication.papers.shift.figures", "replication.papers.position.figures"
    )
    assert changed == Changed(due, records, older, drawn)


def datasets_of(measurement):
    """The datasets that decide a measurement: its own, and those of all trainings before it."""
    trained = measurement.on.lineage if measurement.on else ()
    read = (*measurement.datasets, *(run.dataset for run in trained))
    return {info.name for info in read}


@pytest.mark.slow
def test_a_datasets_entry_concerns_what_is_trained_or_measured_on_it(after, catalog):
    changed = after("configs/datasets.yaml", "mean: [0.54863, 0.47728", "mean: [0.5, 0.47728")
    due, records = of_dataset(catalog, "piece-to-crop")
    # Claims rest on it, and are then no longer those that were registered.
    assert changed == Changed(due, records, NOTHING, NOTHING, REPORT)


@pytest.mark.slow
def test_the_entry_of_a_dataset_that_is_searched_on_concerns_the_search_and_the_claims(
    after, catalog
):
    """Scores of the search before are then of other data, so their rates are taken no more.

    Claims rest on the dataset, and are then no longer those that were registered.
    """
    due, records = of_dataset(catalog, "pieces-in-corners")
    following = {path for path in due if "-twice-" in path}  # a search goes on at these rates
    assert following
    changed = after(
        *("configs/datasets.yaml", "mean: [0.112, 0.10866", "mean: [0.5, 0.10866"),
        no_more=len(following),
    )
    searches = catalog.paper("position").searches
    searched, _ = of_runs(
        catalog,
        lambda run: (
            run.paper == "position"
            and run.dataset.name == "pieces-in-corners"
            and searches.covering(run.name)
        ),
    )
    assert changed.older <= searched
    shown = {
        str(path)
        for path, rendering in catalog.renderings.items()
        if any(
            str(record).startswith(f"{Path(folder).parent}/")
            for folder in changed.older
            for record in rendering.records
        )
    }
    table = {"results/laptop/position/search.json"}
    assert changed == Changed(due, records, changed.older, table | shown, REPORT)


def of_dataset(catalog, dataset):
    """The measurements that a dataset decides, and the records of the trainings on it."""
    due = of_measurements(catalog, lambda measurement: dataset in datasets_of(measurement))
    _, records = of_runs(
        catalog, lambda run: dataset in {trained.recipe.data.dataset for trained in run.lineage}
    )
    return due, records


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("swin_t_upernet_ade20k_circular.py", "cat_max_ratio=0.75", "cat_max_ratio=0.5"),
        ("a_swin_t_upernet_ade20k_circular.py", "drop_path_rate=0.3", "drop_path_rate=0.2"),
    ],
)
def test_a_configuration_concerns_the_segmenters_that_are_made_of_it(
    after, catalog, file, old, new
):
    """Their recipes have another hash, and so their runs other folders.

    So have recipes that take the rate that was searched for one of them: that of another model.
    """
    shift = catalog.paper("shift")

    def has_it(run):
        if run is None or run.recipe.task != "segmentation" or run.paper != "shift":
            return False
        recipes = [run.recipe]
        searched = shift.searches.covering(run.name)
        if searched and run in catalog.runs.values():  # others are shown as at full scale
            recipes.append(shift.run(searched).recipe)
        return any(file in recipe.model.files for recipe in recipes)

    changed = after(f"configs/segmentation/{file}", old, new)
    due = of_measurements(catalog, lambda measurement: has_it(measurement.on))
    folders, records = of_runs(catalog, has_it)
    shown = {
        str(path)
        for path, rendering in catalog.renderings.items()
        if due & set(map(str, rendering.records))
    }
    # Which names its records, and their recipes' hashes.
    assert changed == Changed(due, records, folders, shown, REPORT)
