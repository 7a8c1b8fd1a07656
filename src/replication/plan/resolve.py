"""One paper at one scale: its recipes, the settings of their runs, and its measures.

A recipe is made in three steps: the paper's own values, then the changes that the paper's file of
the scale makes to recipes by patterns of their names, then the dataset that stands in. Every value
keeps the file and line that set it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from replication.config.claims import read_claims
from replication.config.datasets import DatasetInfo, find
from replication.config.paper import ArtifactsFile, Delta, MeasureSpec, PaperScale, RecipesFile
from replication.config.recipe import placed_at
from replication.config.recipe_types import KINDS, AnyRecipe, parse_recipe
from replication.config.schema import (
    Placed,
    StandIns,
    load,
    match,
    matching,
    merge,
    place_of,
    refuse_unmatched,
)
from replication.config.settings import RunSettings, Scale, known_scales, load_scale
from replication.config.tuning import Searches, TuningResult, read_found
from replication.plan import fast_dev_run
from replication.plan.code_digest import parameters_of
from vitrail.errors import VitrailError, did_you_mean, require_known


class PaperAtScale:
    """The content of a paper's folder at one scale.

    `recipes` are as the paper has them, before any scale; `overlay` is what the scale changes.
    """

    def __init__(
        self,
        folder: Path,
        scale: Scale,
        datasets: Mapping[str, DatasetInfo],
        root: Path,
        rehearsed: bool = False,
    ) -> None:
        """Read the files; raises VitrailError if one is wrong or names something unknown.

        If `rehearsed`, there are no claims, and recipes and measures are changed by `fast_dev_run`.
        """
        self.folder, self.scale, self.datasets, self.root = folder, scale, datasets, root
        self.rehearsed = rehearsed
        self.recipes_path, self.artifacts_path = folder / "recipes.yaml", folder / "artifacts.yaml"
        self.searched_path = folder / "searched.csv"
        written = load(RecipesFile, self.recipes_path)
        self.recipes, self._ours = written.expand(str(self.recipes_path)), written.ours
        read = load(ArtifactsFile, self.artifacts_path)
        artifacts = {
            name: spec.with_choices(written.axes, f"{self.artifacts_path}, {name}")
            for name, spec in read.artifacts.items()
        }
        self.artifacts_file = read.model_copy(update={"artifacts": artifacts})
        for name, spec in self.artifacts_file.artifacts.items():
            spec.refuse_equal_labels(f"{self.artifacts_path}, {name}")
            spec.refuse_unknown_variants(f"{self.artifacts_path}, {name}")
        claims = read_claims(folder / "claims.yaml", self.artifacts_file.artifacts)
        self.scale_path = folder / "scales" / f"{scale.name}.yaml"
        self.overlay = _read_overlay(self.scale_path, known_scales(root))
        self.claims = tuple(
            claim.model_copy(update={"untested": self._untested(claim.id)}) for claim in claims
        )
        self._refuse_unknown_names()
        if rehearsed:
            self.claims = ()

    def _untested(self, claim: str) -> str:
        """Return why models of this scale cannot test a claim; "" if they can."""
        reasons = matching(claim, self.overlay.untested)
        return reasons[-1] if reasons else ""

    @property
    def stand_ins(self) -> StandIns:
        """Return the stand-in of each dataset that has one; the paper's overrides the scale's.

        It is None for a dataset whose images the scale does not have. In a rehearsal it is a
        miniature, if there is one.
        """
        own = merge(self.scale.datasets, self.overlay.datasets)
        return fast_dev_run.stand_ins(own, self.datasets) if self.rehearsed else own

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def recipe(self, name: str) -> AnyRecipe:
        """Return a recipe at this scale; `weights_from` is the name of the recipe it starts from.

        Raises VitrailError if there is no such recipe, or it is not valid.
        """
        return self._recipe(name, self.values(name))

    def values(self, name: str) -> Placed:
        """Return the values of a recipe at this scale, each with its origin.

        These are the values that are written, with the learning rate that a search has found and
        the changes of a rehearsal merged over them.
        """
        values = self._written(name)
        if (found := self.searched_rate(name)) is not None:
            searched = self.searches.covering(name)
            place = f"{self.searched_path}: the best of the search of {searched}"
            rate = placed_at(KINDS[values["task"]].rate, found)
            values = merge(values, _all_placed(rate, place))
        if self.rehearsed:
            changes = fast_dev_run.changes_of(self._recipe(name, values), self.scale.device)
            values = merge(values, _all_placed(changes, "--config fast_dev_run=true"))
        return values

    def _written(self, name: str) -> Placed:
        """Return a recipe's values at this scale before the results of searches are applied."""
        written = self._laid(name)
        dataset, stand_ins = self._dataset(name, written), self.stand_ins
        if dataset is not None and (here := stand_ins.get(dataset)) is not None:
            place = place_of(stand_ins, dataset) or ""
            written = merge(written, {"data": _placed("dataset", here, place)})
        return self._completed(name, written)

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def _laid(self, name: str) -> Placed:
        """Return a recipe with the changes of the scale, before a dataset stands in."""
        self.require(name)
        return merge(self.recipes[name], *matching(name, self.overlay.recipes))

    @functools.cached_property
    def searches(self) -> Searches:
        """Return the searches of this scale, with the scores that they have found."""
        groups = self.overlay.searches
        return Searches(groups, read_found(self.searched_path) if groups else {})

    def searched(self, name: str) -> tuple[AnyRecipe, DatasetInfo]:
        """Return a searched recipe with the learning rate that is written, and its dataset.

        Raises:
            VitrailError: it starts from the weights of another recipe, or is not valid.
        """
        recipe = self._recipe(name, self._written(name))
        if source := recipe.model.weights_from:
            raise VitrailError(
                f"{self._where(name)}: it is searched, and starts from the weights of '{source}', "
                "which has seen the images that would be held out; search that one"
            )
        return recipe, find(recipe.data.dataset, self.datasets)

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def searched_rate(self, name: str) -> float | None:
        """Return the best rate of the search that covers a recipe; None before it has ended.

        None, too, if no search covers the recipe.
        """
        searched = self.searches.covering(name)
        return self.searches.best_rate(searched, *self.searched(searched)) if searched else None

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def tuning_result(self, name: str) -> TuningResult | None:
        """Return the result of the search that covers a recipe; None before it has ended.

        None, too, if no search covers the recipe, or only one of another length on its dataset. For
        a recipe that starts from the weights of others on its own dataset, it is the search of the
        one trained first.
        """
        dataset = self.recipe(name).data.dataset
        chain = (name, *self.sources(name))
        trained = [own for own in chain if self.recipe(own).data.dataset == dataset][-1]
        if (searched := self.searches.covering(trained)) is None:
            return None
        recipe, info = self.searched(searched)
        if info.name == dataset:
            searched_steps, steps = (
                some.steps(info.train_images) for some in (recipe, self.recipe(trained))
            )
            if searched_steps != steps:
                return None
        return self.searches.result(searched, recipe, info)

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def as_printed(self, name: str) -> bool:
        """Tell whether a recipe, and those that it starts from, are as the paper has them.

        This is asked of a recipe by name and not of its run: of two recipes that are equal at a
        scale, only one may be as the paper has it. Errors as `recipe`.
        """
        return all(
            self.recipe(recipe) == self.printed(recipe) for recipe in (name, *self.sources(name))
        )

    def printed(self, name: str) -> AnyRecipe:
        """Return a recipe as the paper has it, before any scale; errors as `recipe`."""
        return self._recipe(name, self.printed_values(name))

    def printed_values(self, name: str) -> Placed:
        """Return a recipe's values before any scale, each with its origin."""
        self.require(name)
        return self._completed(name, self.recipes[name])

    def changes(self, name: str) -> dict[str, str]:
        """Return what this scale changes of a recipe, by field: ``15 (paper: 100)``.

        Raises:
            VitrailError: there is no such recipe, or it is not valid.
        """
        recipes = (self.recipe(name), self.printed(name))
        here, printed = (dict(_leaves(recipe.shown())) for recipe in recipes)
        return {
            field: f"{here.get(field, 'none')} (paper: {printed.get(field, 'none')})"
            for field in {**printed, **here}
            if here.get(field) != printed.get(field)
        }

    @functools.cached_property
    def stands_for(self) -> dict[str, list[str]]:
        """Return the stand-ins that this scale reads, each with the datasets that it replaces."""
        measures = self.artifacts_file.measures.values()
        pairs = [
            (self.recipe(name).data.dataset, self.printed(name).data.dataset)
            for name in self.recipes
            if not self.without(name)
        ] + [
            (here, dataset)
            for measure in measures
            for dataset in measure.datasets
            if (here := self.stand_ins.get(dataset, dataset)) is not None
        ]
        found: dict[str, list[str]] = {}
        for here, printed in dict.fromkeys(pairs):
            if here != printed:
                found.setdefault(here, []).append(printed)
        return found

    @functools.cached_property
    def names_replaced(self) -> dict[str, str]:
        """Return the stand-ins that this scale reads, each with the names of what it replaces.

        A dataset is left out if it has the name and the numbers of images of what it replaces: it
        is the same with another split.
        """

        def content(name: str) -> tuple[str, int, int]:
            info = self.datasets[name]
            return info.called, info.train_images, info.val_images

        return {
            here: " and ".join(dict.fromkeys(self.datasets[name].called for name in replaced))
            for here, replaced in self.stands_for.items()
            if {*map(content, replaced)} != {content(here)}
        }

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def sources(self, name: str) -> tuple[str, ...]:
        """Return the recipe that a recipe starts from, the one that this starts from, and so on.

        Raises VitrailError if one of these recipes does not exist, or they form a circle.
        """
        chain = [name]
        while (source := self.recipe(chain[-1]).model.weights_from) is not None:
            self.require(source, f"recipe '{chain[-1]}' starts from weights and ")
            chain.append(source)
            if source in chain[:-1]:
                raise VitrailError(
                    f"{self.recipes_path}: recipe '{source}' starts from its own weights "
                    f"({' <- '.join(chain)}); correct one model.weights_from"
                )
        return tuple(chain[1:])

    def require(self, name: str, reason: str = "") -> None:
        """Raise VitrailError if there is no such recipe; `reason` is put before the sentence."""
        if name not in self.recipes:
            raise VitrailError(
                f"{self.recipes_path}: {reason}no recipe is called '{name}'"
                f"{did_you_mean(name, self.recipes)}"
            )

    def run_settings(self, recipe: str | None = None) -> RunSettings:
        """Return the settings of a recipe's runs: seeds, training options and resources.

        Without a recipe, only the changes under the pattern ``*`` apply.
        """
        own = self.scale.with_deltas(matching(recipe or "", self.overlay.runs))
        return fast_dev_run.run_settings_of(own) if self.rehearsed else own

    def measure(self, name: str) -> MeasureSpec:
        """Return a measure with its arguments and number of seeds at this scale."""
        spec = self.artifacts_file.measures[name]
        deltas = matching(name, self.overlay.measures)
        seeds = [number for number in (spec.seeds, *(delta.seeds for delta in deltas)) if number]
        args = merge(spec.args, *(delta.args for delta in deltas))
        own = spec.model_copy(update={"args": args, "seeds": seeds[-1] if seeds else None})
        if not self.rehearsed:
            return own
        return fast_dev_run.measure_of(own, parameters_of(own.function), self.scale.device)

    def lacking(self, measure: str | None, recipe: str | None) -> tuple[str, ...]:
        """Return the datasets of a measure and of its recipe that this scale does not have."""
        measures = self.artifacts_file.measures
        named = measures[measure].datasets if measure in measures else ()
        own = self._dataset(recipe, self._laid(recipe)) if recipe in self.recipes else None
        lacked = {dataset for dataset, here in self.stand_ins.items() if here is None}
        return tuple(dataset for dataset in (*named, own) if dataset in lacked)

    def scales_with(self, dataset: str, artifact: str) -> list[str]:
        """Return the scales that make an artifact with a dataset's own images, no stand-in."""
        scales = known_scales(self.root)
        return [
            name
            for name in scales
            if _makes(overlay := _read_overlay(self.scale_path.with_stem(name), scales), artifact)
            and dataset not in {**load_scale(self.root, name).datasets, **overlay.datasets}
        ]

    @functools.cache  # noqa: B019 - a catalogue lives as long as the process
    def without(self, recipe: str) -> bool:
        """Tell whether this scale leaves a recipe out, or does not have its images."""
        left_out = (*self.overlay.without, *(() if self.scale.extensions else self._ours))
        named = any(match(recipe, patterns) for patterns in left_out)
        return named or bool(self.lacking(None, recipe))

    def is_ours(self, recipe: str) -> bool:
        """Tell whether a recipe belongs to a row that the paper does not have (`ours`)."""
        return any(match(recipe, patterns) for patterns in self._ours)

    @property
    def artifact_names(self) -> tuple[str, ...]:
        """Return the names of this scale's artifacts, in the paper's order."""
        return tuple(name for name in self.artifacts_file.artifacts if _makes(self.overlay, name))

    def _refuse_unknown_names(self) -> None:
        """Raise VitrailError for a name in a file of the scale that matches nothing.

        Such an entry would be ignored without notice.
        """
        artifacts, measures = self.artifacts_file.artifacts, self.artifacts_file.measures
        for patterns in self._ours:
            refuse_unmatched(f"{self.recipes_path}: ours: recipe", patterns, self.recipes)
        path, overlay = self.scale_path, self.overlay
        for patterns in (*overlay.recipes, *overlay.runs, *overlay.without):
            refuse_unmatched(f"{path}: recipe", patterns, self.recipes)
        for patterns in overlay.measures:
            refuse_unmatched(f"{path}: measure", patterns, measures)
        for group in overlay.searches:
            for searched, patterns in group.of.items():
                require_known(f"{path}: searches: recipe", searched, self.recipes)
                refuse_unmatched(f"{path}: searches: recipe", patterns, self.recipes)
        for patterns in overlay.untested:
            known = [claim.id for claim in self.claims]
            refuse_unmatched(f"{path}: untested: claim", patterns, known)
        for name in overlay.artifacts or ():
            refuse_unmatched(f"{path}: artifact", name, artifacts)
        named = {name for measure in measures.values() for name in measure.datasets}
        stand_ins = {name for name in self.stand_ins.values() if name is not None}
        for name in sorted(named | {*self.stand_ins} | stand_ins):
            find(name, self.datasets)

    def _recipe(self, name: str, values: Delta) -> AnyRecipe:
        return parse_recipe(values, self._where(name))

    def _where(self, name: str) -> str:
        return f"{self.recipes_path}, recipe '{name}' at scale '{self.scale.name}'"

    def _dataset(self, name: str, written: Delta) -> str | None:
        """Return the dataset that a recipe names; raises VitrailError if it is not a string."""
        data = written.get("data")
        dataset = data.get("dataset") if isinstance(data, dict) else None
        if dataset is not None and not isinstance(dataset, str):
            raise VitrailError(
                f"{self._where(name)}: data.dataset is {dataset!r}; give the name of one dataset"
            )
        return dataset

    def _completed(self, name: str, written: Delta) -> Placed:
        """Add the values that no file sets: the dataset's version, and what the kind derives."""
        require_known(f"{self._where(name)}: task", str(written["task"]), KINDS)
        more: dict[str, Placed] = {}
        if (dataset := self._dataset(name, written)) is not None:
            version = find(dataset, self.datasets).version
            place = f"configs/datasets.yaml: the version of {dataset}"
            more["data"] = _placed("version", version, place)
        return merge(written, more, KINDS[written["task"]].derived(written, self.root))


def _placed(key: str, value: Any, place: str) -> Placed:
    return Placed({key: value}, {key: place})


def _all_placed(values: Mapping[str, Any], place: str) -> Placed:
    """Return nested mappings whose keys all have the same place of origin."""
    nested = {
        key: _all_placed(value, place) if isinstance(value, dict) else value
        for key, value in values.items()
    }
    return Placed(nested, dict.fromkeys(nested, place))


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings with their dotted keys, such as ``schedule.epochs``."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "none" if value is None else value


def _makes(overlay: PaperScale, artifact: str) -> bool:
    """Tell whether a scale makes an artifact."""
    return overlay.artifacts is None or any(match(artifact, name) for name in overlay.artifacts)


def _read_overlay(path: Path, scales: Iterable[str]) -> PaperScale:
    """Read what a scale changes of a paper; a scale without a file makes no artifact of it."""
    for file in path.parent.glob("*.yaml"):
        refuse_unmatched(f"{file}: scale", file.stem, scales)
    if not path.is_file():
        return PaperScale(artifacts=())
    return load(PaperScale, path)
