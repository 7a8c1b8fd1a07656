"""The files of a paper's folder ``configs/papers/<paper>/`` as typed objects.

``paper.yaml``, ``recipes.yaml``, ``artifacts.yaml`` and the printed values in ``reference/*.csv``
describe the paper and nothing else. All that a scale changes is in ``scales/<scale>.yaml``.
"""

from __future__ import annotations

import csv
import itertools
import string
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, PositiveInt, create_model

from replication.config.recipe_types import KINDS
from replication.config.schema import (
    Delta,
    Placed,
    StandIns,
    Strict,
    laid_over_bases,
    match,
    matching,
    merge,
    parse,
    refuse_unmatched,
)
from replication.config.settings import RunSettings
from replication.config.tuning import SearchGroup
from vitrail.errors import VitrailError, did_you_mean, require_known


class PrintedCost(Strict):
    """The cost that the paper states for some trainings, in hours of one A100.

    Several rows mean that the paper does not say which row belongs to which training.
    """

    recipes: tuple[str, ...] = Field(description="patterns of names")
    reference: str = Field(description="file of reference/ without its suffix")
    column: str
    rows: tuple[str, ...]
    trainings: PositiveInt = Field(1, description="that a row counts together")


class PaperInfo(Strict):
    """``paper.yaml``."""

    title: str
    authors: str
    venue: str
    url: str = ""
    costs: tuple[PrintedCost, ...] = ()


class Family(Strict):
    """A family of recipes: `name` is a template, with one recipe for each combination of choices.

    ``{axis}`` in `name` stands for each choice of an axis, and ``{axis:patterns}`` for each choice
    that matches the patterns.
    """

    name: str
    task: str = Field("classification", description="the kind of training")

    def members(
        self, axes: Mapping[str, Collection[str]], where: str
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield the name of each recipe, and its choice of each axis in the order of the name.

        Raises VitrailError if an axis is unknown, or if patterns match none of its choices.
        """
        here = f"{where}: recipe '{self.name}'"
        try:
            parts = [part[:3] for part in string.Formatter().parse(self.name)]
        except ValueError as error:
            raise VitrailError(f"{here}: the name is no template ({error})") from None
        choices: dict[str, list[str]] = {}
        for _, axis, patterns in parts:
            if axis is not None:
                require_known(f"{here}: axis", axis, axes)
                refuse_unmatched(f"{here}: choice", patterns or "*", axes[axis])
                choices[axis] = [name for name in axes[axis] if match(name, patterns or "*")]
        for chosen in itertools.product(*choices.values()):
            choice_of = dict(zip(choices, chosen, strict=True))
            name = "".join(text + choice_of.get(axis or "", "") for text, axis, _ in parts)
            yield name, choice_of


class Families(Strict):
    """``recipes.yaml`` without the bases of the kinds of training: see `RecipesFile`.

    A recipe is its base, merged with its choice of each axis, then with the deltas whose patterns
    match its name. A choice of an axis may have ``extends: <another choice of it>`` and give only
    what differs.
    """

    base: Delta = Field({}, description="what recipes of families without a task have in common")
    axes: dict[str, dict[str, Delta]] = {}
    recipes: tuple[Family, ...]
    deltas: dict[str, Delta] = Field({}, description="recipes -> what is laid over them")
    ours: tuple[str, ...] = Field(
        (), description="recipes of rows that the paper lacks; scales run them or do not"
    )

    def expand(self, where: str) -> dict[str, Delta]:
        """Return every recipe of the paper by name, with base, choices and deltas merged.

        Raises VitrailError if an axis or a choice is unknown, if two recipes have the same name, or
        if patterns match no recipe.
        """
        axes = {
            axis: {
                choice: laid_over_bases(choice, choices, f"{where}: axis '{axis}'")
                for choice in choices
            }
            for axis, choices in self.axes.items()
        }
        recipes: dict[str, Delta] = {}
        for family in self.recipes:
            for name, choice_of in family.members(axes, where):
                if name in recipes:
                    raise VitrailError(f"{where}: two recipes are called '{name}'; rename one")
                chosen = (axes[axis][choice] for axis, choice in choice_of.items())
                deltas = matching(name, self.deltas)
                recipes[name] = merge(self._base_of(family, where), *chosen, *deltas)
        for patterns in self.deltas:
            refuse_unmatched(f"{where}: recipe", patterns, recipes)
        return recipes

    def _base_of(self, family: Family, where: str) -> Delta:
        if "task" not in family.model_fields_set:
            return merge({"task": family.task}, self.base)
        here = f"{where}: the recipes '{family.name}'"
        require_known(f"{here}: task", family.task, KINDS)
        base = getattr(self, family.task)
        return merge(Placed({"task": family.task}, {"task": here}), base)


RecipesFile = create_model(
    "RecipesFile",
    __base__=Families,
    __doc__="``recipes.yaml``: families of recipes, and under each kind's task its own base.",
    **{task: (Delta, Field({}, description="as `base`")) for task in KINDS},  # type: ignore[call-overload]
)


class MeasureSpec(Strict):
    """A measure: a function, its arguments, and what it is taken on.

    With `on: run` it is taken on a trained model, with `on: recipe` on a recipe before any
    training, and with `on: paper` on the paper's own recipe at every scale, for facts that need
    neither data nor training. Without `on` it is taken on none of these.
    """

    function: str
    on: Literal["run", "recipe", "paper"] | None = None
    args: Delta = {}
    seeds: PositiveInt | None = None
    datasets: tuple[str, ...] = ()
    device: Literal["scale", "cpu"] = "scale"


class ShownColumn(Strict):
    """A column of a table as it is rendered."""

    label: str
    group: str | None = None

    @property
    def full_label(self) -> str:
        """Return the label with its group, as reference files write it."""
        return f"{self.group} / {self.label}" if self.group else self.label


class Labelled(ShownColumn):
    """A row or a column: its label, and variables that fill the cell's template."""

    model_config = ConfigDict(extra="allow")

    variant_of: str | None = Field(
        None,
        description="full label of the row or column of which this is another reading, by which a "
        "number printed there may be explained",
    )
    each: str | None = Field(
        None,
        description="an axis of recipes.yaml: one of these for each of its choices, which the "
        "label has in braces",
    )

    def of_choices(self, axes: Mapping[str, Iterable[str]], where: str) -> Iterator[Labelled]:
        """Yield a row or column for each choice of the axis `each`; itself if it names no axis.

        Raises:
            VitrailError: there is no such axis, or the label names another one; `where` begins the
                error.
        """
        if self.each is None:
            yield self
            return
        require_known(f"{where}: axis", self.each, axes)
        for choice in axes[self.each]:
            label = fill(self.label, {self.each: choice}, where)
            yield self.model_copy(update={"each": None, "label": label, self.each: choice})

    @property
    def variables(self) -> Delta:
        """Return the variables that the template may name."""
        return {**(self.model_extra or {}), "label": self.label}


class CellSpec(Strict):
    """One cell, or the template of all cells, whose strings row and column variables fill."""

    measure: str | None = None
    recipe: str | None = None
    key: str = ""
    metric: str = ""
    unit: str = ""
    digits: int | None = None
    exact: bool = False
    comparable: bool = Field(True, description="false: the paper's number is of something else")
    hardware: bool = Field(False, description="a time or memory, which another machine changes")


class ArtifactSpec(Strict):
    """A table with rows, columns and cells; a figure has a function that draws it, too."""

    title: str
    caption: str
    source: str
    note: str = ""
    row_header: str = ""
    metric: str = ""
    unit: str = ""
    digits: int | None = None
    defaults: Delta = Field({}, description="variables that rows and columns may leave out")
    rows: tuple[Labelled, ...] = ()
    columns: tuple[Labelled, ...] = ()
    cell: CellSpec = CellSpec()
    draw: str | None = None
    collection: str | None = Field(
        None, description="a target that makes all tables and figures, of any paper, that name it"
    )

    @property
    def kind(self) -> Literal["table", "figure"]:
        """Return "figure" if there is a function that draws it, otherwise "table"."""
        return "figure" if self.draw else "table"

    def with_choices(self, axes: Mapping[str, Iterable[str]], where: str) -> ArtifactSpec:
        """Return the artifact with each row or column that names an axis repeated for its choices.

        Raises:
            VitrailError: as `Labelled.of_choices`.
        """
        sides = {"rows": self.rows, "columns": self.columns}
        spread = {
            side: tuple(each for given in labelled for each in given.of_choices(axes, where))
            for side, labelled in sides.items()
        }
        return self.model_copy(update=spread)

    def refuse_equal_labels(self, where: str) -> None:
        """Raise VitrailError if two rows or two columns have the same label and group.

        Cells are looked up by labels. `where` begins the error.
        """
        for kind, labelled in (("rows", self.rows), ("columns", self.columns)):
            first: dict[str, Labelled] = {}
            for given in labelled:
                if first.setdefault(given.full_label, given) is not given:
                    group = f"of group '{given.group}' " if given.group else ""
                    raise VitrailError(
                        f"{where}: two {kind} {group}have the label '{given.label}'; rename one"
                    )

    def refuse_unknown_variants(self, where: str) -> None:
        """Raise VitrailError if a row or column is a variant of something unknown or of a variant.

        `where` begins the error.
        """
        for kind, labelled in (("row", self.rows), ("column", self.columns)):
            own = {given.full_label for given in labelled if given.variant_of is None}
            for given in labelled:
                if given.variant_of is not None:
                    place = f"{where}, {kind} '{given.full_label}': variant_of"
                    require_known(place, given.variant_of, own)

    @property
    def variants(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Return the places of variants' cells, each with the place of the original's cell."""
        return {
            (row.full_label, column.full_label): (
                row.variant_of or row.full_label,
                column.variant_of or column.full_label,
            )
            for row in self.rows
            for column in self.columns
            if row.variant_of or column.variant_of
        }

    def cell_at(self, row: Labelled, column: Labelled, where: str) -> CellSpec:
        """Fill the cell's template for one row and column."""
        own = CellSpec.model_fields
        given = {**row.variables, **column.variables}
        fields = {
            "metric": self.metric,
            "unit": self.unit,
            "digits": self.digits,
            **self.cell.model_dump(exclude_unset=True),
            **{key: value for key, value in given.items() if key in own},
        }
        variables = self.defaults | {key: given[key] for key in given if key not in own}
        place = f"{where}, cell ({row.full_label}, {column.full_label})"
        filled = {
            key: fill(value, variables, place) if isinstance(value, str) else value
            for key, value in fields.items()
        }
        return parse(CellSpec, filled, place)


class ArtifactsFile(Strict):
    """``artifacts.yaml``."""

    shared: tuple[Any, ...] = Field(
        (), description="what is repeated below: each item has an anchor (&name), used by *name"
    )
    measures: dict[str, MeasureSpec]
    artifacts: dict[str, ArtifactSpec]


class MeasureDelta(Strict):
    """The changes that a scale makes to a measure."""

    args: Delta = {}
    seeds: PositiveInt | None = None


class PaperScale(Strict):
    """``scales/<scale>.yaml``: the changes that one scale makes to the paper.

    Each mapping is from patterns of names, separated by commas, to changes. Later changes are
    merged over earlier ones.
    """

    datasets: StandIns = Field(
        {}, description="dataset -> the one that stands in for it in this paper; null: as in Scale"
    )
    recipes: dict[str, Delta] = Field({}, description="recipes -> what is laid over them")
    runs: dict[str, RunSettings] = Field({}, description="recipes -> their seeds and resources")
    measures: dict[str, MeasureDelta] = Field({}, description="measures -> what changes of them")
    searches: tuple[SearchGroup, ...] = Field(
        (), description="recipes whose learning rate was searched"
    )
    artifacts: tuple[str, ...] | None = Field(
        None, description="patterns of those that exist; else all"
    )
    without: tuple[str, ...] = Field(
        (),
        description="recipes that are not run; their cells are empty, artifacts of them are none",
    )
    untested: dict[str, str] = Field(
        {}, description="claims -> why models of this scale cannot test them"
    )
    lists_changes: bool = Field(
        False, description="each table's note says what the scale changes of its recipes"
    )


class Printed(Strict):
    """The printed value of a cell (a number, or a word such as "Inconsistent"), and its place.

    `spread` is the text of the standard deviation, with every digit that is printed; "" for none.
    """

    value: float | str
    spread: str
    source: str

    @property
    def std(self) -> float | None:
        """Return the printed standard deviation; None if there is none."""
        return float(self.spread) if self.spread else None


def read_reference(path: Path) -> dict[tuple[str, str], Printed]:
    """Read the printed values of one artifact, by row and column; {} if there is no file.

    Raises VitrailError if the header is wrong, a cell occurs twice, its source is missing, or its
    standard deviation is no number.
    """
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != ["row", "column", "value", "std", "source"]:
            raise VitrailError(f"{path}: the header must be row,column,value,std,source")
        printed: dict[tuple[str, str], Printed] = {}
        for line in reader:
            cell = (line["row"], line["column"])
            if cell in printed:
                raise VitrailError(f"{path}: the cell {cell} stands twice; remove one")
            if not line["source"]:
                raise VitrailError(f"{path}: the cell {cell} has no source; say table and page")
            spread = line["std"]
            if spread and isinstance(_number_or_word(spread), str):
                raise VitrailError(
                    f"{path}: the std of {cell} is '{spread}'; give a number or none"
                )
            printed[cell] = Printed(
                value=_number_or_word(line["value"]), spread=spread, source=line["source"]
            )
    return printed


def fill(template: str, variables: Mapping[str, Any], where: str) -> str:
    """Format `template` with `variables`; raises VitrailError if one is missing."""
    try:
        return template.format_map(variables)
    except KeyError as error:
        unknown = f"'{error.args[0]}'{did_you_mean(str(error.args[0]), variables)}"
        raise VitrailError(f"{where}: '{template}' names {unknown}") from None
    except (ValueError, IndexError, AttributeError) as error:
        raise VitrailError(f"{where}: '{template}' is no template ({error})") from None


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
