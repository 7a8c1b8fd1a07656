"""What an audit answers follows from its numbers; its yardsticks are what the papers print."""

import csv

import pytest

import vitrail
from tests.conftest import ROOT
from vitrail.commands import audit_parts as parts
from vitrail.commands.audit_answers import (
    CONSISTENT,
    GAINS,
    ONE_CLASS,
    RECIPES,
    YARDSTICKS,
    Seen,
    _images_needed,
    answers,
    interval,
)
from vitrail.commands.audit_parts import KEPT

MEASURED = (
    *("Accuracy", "Circular shifts", "Standard shifts", "Turns and mirrors", "P-SHAP"),
    "Test sizes",
)
TWO = "circular, two shifts"
SEEN = Seen([0, 1] * 6, labelled=True, left=1000, classes=2, size=224)


def told(seen=SEEN, **rows):
    """The answers from parts of which only some were measured."""
    found = {name: {"refused": "not this one"} for name in MEASURED}
    found |= {name.replace("_", " "): {"rows": of} for name, of in rows.items()}
    return [answer for answer in answers(found, seen) if "not this one" not in answer]


def shifts(two, worst, images, change=1.0):
    return [
        parts._share(KEPT, TWO, two, images),
        parts._share(KEPT, "circular, all of 16 shifts", worst, images),
        parts._share("logits equal in every bit", TWO, 0, images),
        parts._number("largest difference of a logit", TWO, change, images),
    ]


@pytest.mark.parametrize(
    ("two", "worst", "images", "change", "verdict"),
    [
        (75, 50, 12, 1.0, "No: fewer"),
        (100, 58 + 1 / 3, 12, 1.0, "No: fewer"),  # two shifts changed nothing, others did
        (99, 98, 5000, 1.0, "No: fewer"),  # the interval ends at 98.4 %
        (100, 99.5, 10_000, 1.0, "Yes: "),  # it begins at 99.3 %
        (100, 99, 100, 1.0, "100 images cannot tell"),
        (75, 100, 12, 1.0, "No: fewer"),  # the two shifts are not among the 16
        (100, 100, 50, 1.0, "50 images cannot tell"),  # from 92.9 %
        (100, 100, 50, 1e-5, "Yes: "),  # no logit moved
        (100, 98, 50, 1e-5, "50 images cannot tell"),  # another shift changed a prediction
    ],
)
def test_consistent_or_not_is_told_by_the_interval(two, worst, images, change, verdict):
    (answer,) = told(Circular_shifts=shifts(two, worst, images, change))
    assert answer.startswith(f"Is it consistent under shifts? {verdict}")
    assert f"{worst:.4g} % of {images} images (95 %: " in answer
    assert f"{two} % (95 %: " in answer


def test_so_many_images_settle_it():
    needed = _images_needed()
    assert parts._share(KEPT, "", 100, needed)["low"] > CONSISTENT
    assert parts._share(KEPT, "", 100, needed - 1)["low"] < CONSISTENT
    (answer,) = told(Circular_shifts=shifts(100, 100, needed - 1))
    assert f"If all do, {needed} images show it." in answer
    (answer,) = told(Circular_shifts=shifts(99, 98, needed - 1))
    assert "If all do" not in answer  # one did not


@pytest.mark.parametrize(("equal", "verdict"), [(100, "Yes: "), (90, "20 images cannot tell")])
def test_turns_are_judged_by_all_of_them(equal, verdict):
    rows = [
        parts._share(KEPT, "turned 90°", 50, 20),
        parts._share(KEPT, "all of these", 100, 20),
        parts._share("logits equal within 0.0001 of the largest", "all of these", equal, 20),
    ]
    (answer,) = told(Turns_and_mirrors=rows)
    assert answer.startswith(f"Is it consistent under turns and mirrors? {verdict}")
    assert "100 % of 20 images" in answer


@pytest.mark.parametrize(
    ("lower", "verdict"), [(50, "No: fewer"), (99.9, "Yes: "), (98.95, "5000 images cannot tell")]
)
@pytest.mark.parametrize("flipped", [False, True])
def test_border_shifts_are_judged_by_the_lower_of_their_two_kinds(lower, verdict, flipped):
    kinds = ("zero-padded, up to 4 px", "crops, up to 4 px")
    shares = [100, lower] if flipped else [lower, 100]
    rows = [parts._share(KEPT, *each, 5000) for each in zip(kinds, shares, strict=True)]
    (answer,) = told(Standard_shifts=rows)
    assert answer.startswith(f"Also where shifts change the image's border? {verdict}")
    assert f"{shares[0]} % of 5000 images (95 %: " in answer
    assert f" {shares[1]} % (95 %: " in answer


def test_a_no_names_the_recipe_that_mends_it():
    (no,) = told(Circular_shifts=shifts(75, 50, 12))
    (yes,) = told(Circular_shifts=shifts(100, 99.5, 10_000))
    (unknown,) = told(Circular_shifts=shifts(100, 100, 50))
    assert RECIPES["Circular shifts"] in no
    assert RECIPES["Circular shifts"] not in yes + unknown
    equal = parts._share("logits equal within 0.0001 of the largest", "all of these", 0, 20)
    (turned,) = told(Turns_and_mirrors=[parts._share(KEPT, "all of these", 50, 20), equal])
    assert RECIPES["Turns and mirrors"] in turned


def test_the_recipes_are_there():
    sections = [
        "".join(
            letter for letter in line.lower().replace(" ", "-") if letter.isalnum() or letter == "-"
        )
        for line in (ROOT / "docs/library.md").read_text().splitlines()
        if line.startswith("### ")
    ]
    for recipe in RECIPES.values():
        assert any(hasattr(vitrail, word) for word in recipe.split())
        assert f"-{recipe.rpartition('#')[2]}" in sections


def test_an_interval_has_no_exponent():
    none, all_of_them = (parts._share(KEPT, "", percent, 12) for percent in (0, 100))
    assert interval(none).startswith("0 to ")
    assert interval(all_of_them).endswith(" to 100")
    small = parts._number("P-SHAP", "", 1e-5, 50) | {"low": 2e-6, "high": 2e-4}
    assert interval(small) == "0 to 0.0002"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.42, 0.46, "Yes: P-SHAP is above 0.01."),
        (0.0, 0.005, "No: P-SHAP is not above 0.01."),
        (0.0, 0.02, "8 images cannot tell"),
        (None, None, "8 images cannot tell"),
    ],
)
def test_position_is_used_where_the_interval_says_so(low, high, verdict):
    why = "too few" if low is None else ""
    row = parts._number("P-SHAP", why, 0.44, 8) | {"low": low, "high": high}
    (answer,) = told(**{"P-SHAP": [row]})
    assert answer.startswith(f"Does it use position? {verdict}")
    assert f"0.44 ({why or '95 %: '}" in answer
    assert "over the 8 of 12 images that are predicted correctly." in answer
    seen = Seen([0] * 4 + [1] * 4, labelled=False, left=0, classes=10, size=224)
    (answer,) = told(seen, **{"P-SHAP": [row]})
    assert "over 8 images." in answer


@pytest.mark.parametrize(
    ("left", "kept", "only"),
    [
        (0, 100, True),
        (0, 98, True),
        (300, 100, True),  # 350 are fewer than are needed
        (300, 98, False),  # how many are needed is not known
        (400, 100, False),
    ],
)
def test_more_images_are_asked_of_the_command_or_of_the_folder_too(left, kept, only):
    seen = Seen([0, 1] * 25, labelled=True, left=left, classes=2, size=224)
    (answer,) = told(seen, Circular_shifts=shifts(100, kept, 50))
    assert "cannot tell" in answer
    assert (f"add images to the folder, which has {50 + left}," in answer) == only
    assert "give a larger --images" in answer


def test_a_model_that_is_worse_than_guessing_is_told_of_the_order_of_labels():
    (answer,) = told(Accuracy=[parts._share("top-1", "", 0, 24)])
    assert "--class-map" in answer
    assert "may be guessing" not in answer


@pytest.mark.parametrize(("right", "guessing"), [(25, True), (45, True), (60, False)])
def test_a_model_that_may_be_guessing_is_told(right, guessing):
    """Of 24 images 45 % are 27 to 64 %, 60 % are 41 to 77 %."""
    seen = Seen([0, 1, 2] * 8, labelled=True, left=0, classes=3, size=224)
    (answer,) = told(seen, Accuracy=[parts._share("top-1", "", right, 24)])
    assert answer.startswith(f"How accurate is it? Top-1 is {right} % of 24 images (95 %: ")
    assert "guessing one of 3 classes is right for 33.3 %." in answer
    assert ("it may be guessing" in answer) == guessing


def test_larger_images_are_told_by_size_and_treatment_of_the_table():
    own = parts._share("top-1: UP(P)", "224 px", 50, 40)
    larger = [parts._share(f"top-1: {way}", "320 px", 40, 40) for way in ("UP(P)", "exact k")]
    (answer,) = told(Test_sizes=[own, *larger])
    assert (
        "How accurate is it at other image sizes? Top-1: 50 % at the model's own 224 px; 40 % "
        "(UP(P)), 40 % (exact k) at 320 px. UP(P) is the position table resized as usual"
    ) in answer
    alone = parts._share("prediction stays: no table 'pos_embed'", "320 px", 40, 40)
    (answer,) = told(Test_sizes=[own, alone])
    assert answer.endswith("40 % (no table 'pos_embed') at 320 px.")


def test_the_models_own_size_need_not_be_the_smallest_nor_have_others_beside_it():
    own = parts._share("top-1: UP(P)", "224 px", 50, 40)
    smaller = [parts._share(f"top-1: {way}", "112 px", 40, 40) for way in ("UP(P)", "exact k")]
    (answer,) = told(Test_sizes=[*smaller, own])
    assert "50 % at the model's own 224 px; 40 % (UP(P)), 40 % (exact k) at 112 px." in answer
    (answer,) = told(Test_sizes=[own])
    assert answer.endswith("Top-1: 50 % at the model's own 224 px.")


def test_equal_logits_do_not_hide_a_changed_prediction():
    rows = [
        parts._share(KEPT, "all of these", 95, 20),
        parts._share("logits equal within 0.0001 of the largest", "all of these", 100, 20),
    ]
    (answer,) = told(Turns_and_mirrors=rows)
    assert "20 images cannot tell" in answer


@pytest.mark.parametrize(("others", "warned"), [(0, True), (4, True), (6, False)])
def test_a_model_that_predicts_one_class_is_told(others, warned):
    predicted = [7] * (100 - others) + [*range(others)]
    assert ((100 - others) / 100 > ONE_CLASS) == warned
    seen = Seen(predicted, labelled=False, left=0, classes=10, size=224)
    first, *_ = told(seen, Circular_shifts=shifts(100, 100, 100, change=0))
    assert first.startswith("Take care: of 100 images the model predicts one class") == warned
    assert (f"number 7, for {100 - others}." in first) == warned


def test_what_was_not_measured_says_why():
    told = list(answers({name: {"refused": f"no {name}"} for name in MEASURED}, SEEN))
    assert [answer.partition("? ")[2] for answer in told] == [
        f"Not measured: no {name}." for name in MEASURED
    ]


def test_the_yardsticks_are_printed():
    with open(ROOT / "configs/papers/shift/reference/table2.csv", newline="") as file:
        printed = {(row["row"], row["column"]): float(row["value"]) for row in csv.DictReader(file)}
    kinds = {"C-Cons.": "Circular Shift", "S-Cons.": "Standard Shift"}
    for column, values in YARDSTICKS.items():
        for model, value in values.items():
            assert printed[model, f"{kinds[column]} / {column}"] == value
    plain, adaptive = YARDSTICKS["C-Cons."].values()
    assert plain < CONSISTENT < adaptive
    with open(ROOT / "configs/papers/variance/reference/table3.csv", newline="") as file:
        printed = {(row["row"], row["column"]): float(row["value"]) for row in csv.DictReader(file)}
    assert {size: printed[f"{size}²", "ViT-B/16 / Diff"] for size in GAINS} == GAINS
