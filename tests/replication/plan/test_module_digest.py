"""The digest of a module changes with what it does, and not with what it is called."""

import re

import pytest

from replication.plan import code_digest as code
from replication.plan import module_digest as module_code
from replication.plan.code_digest import Code
from vitrail.errors import VitrailError


def forget():
    for cached in (
        *(module_code.modules, module_code.counts, module_code.module_code),
        *(code._closure, code._reference),
    ):
        cached.cache_clear()


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """A function: the digest of roots among the modules of these names and texts alone."""
    monkeypatch.setattr(module_code, "SOURCES", tmp_path)

    def digest(modules, *roots):
        for path in tmp_path.rglob("*.py"):
            path.unlink()
        for name, text in modules.items():
            path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        forget()
        return Code(roots).digest

    yield digest
    forget()


@pytest.fixture
def one_module(digest):
    """A function: the digest of a module of this text."""
    return lambda text: digest({"vitrail.module": text}, "vitrail.module:f")


MEASURES = """
from vitrail.parts import half, twice
from vitrail.scale import SCALE

def measure(x):
    return SCALE * twice(x) + helper(x)

def other(x):
    return half(x)

def helper(x):
    from vitrail.late import late

    return late(x) - 1
"""
PARTS = """
def half(x):
    return x / 2

def twice(x):
    return 2 * x
"""
SOME = {
    "vitrail.measures": MEASURES,
    "vitrail.parts": PARTS,
    "vitrail.scale": "SCALE = 3",
    "vitrail.late": "def late(x):\n    return x ** 2\n",
}
MEASURE = "vitrail.measures:measure"


def with_words(changes, text):
    """A text with words replaced, all at once."""
    word = re.compile("|".join(rf"\b{re.escape(old)}\b" for old in changes))
    return word.sub(lambda found: changes[found[0]], text)


@pytest.mark.parametrize(
    "changes",
    [
        {"vitrail.parts": "replication.datasets.other"},
        {"vitrail.late": "vitrail.aaa"},
        {"vitrail.measures": "vitrail.more.measured"},
        {"vitrail.scale": "vitrail.parts", "vitrail.parts": "vitrail.scale"},
        {"measure": "accuracy"},
        {"other": "another"},
        {"helper": "aid"},
        {"twice": "double"},
        {
            "def late": "def belated",
            "import late": "import belated",
            "late(x) - 1": "belated(x) - 1",
        },
        {"twice": "half", "half": "twice"},
    ],
)
def test_modules_and_functions_that_get_other_names_with_all_their_uses_change_nothing(
    digest, changes
):
    before = digest(SOME, MEASURE)
    renamed = {with_words(changes, name): with_words(changes, text) for name, text in SOME.items()}
    assert renamed != SOME
    assert digest(renamed, with_words(changes, MEASURE)) == before


def edited(module, *changes):
    text = SOME[module]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return SOME | {module: text}


@pytest.mark.parametrize(
    "changed",
    [
        edited("vitrail.measures", ("half, twice\n", "half\nfrom vitrail.parts import twice\n")),
        edited(
            "vitrail.measures", ("half, twice", "half as h, twice"), ("return half", "return h")
        ),
        edited(
            "vitrail.measures",
            ("    from vitrail.late import late\n\n", ""),
            ("\nfrom vitrail.scale", "\nfrom vitrail.late import late\nfrom vitrail.scale"),
        ),
        edited(
            "vitrail.measures",
            ("from vitrail.scale import SCALE\n", ""),
            ("from vitrail.parts", "from vitrail.scale import SCALE\nfrom vitrail.parts"),
        ),
    ],
    ids=["two statements", "as", "at the top", "order"],
)
def test_how_and_where_something_is_imported_changes_nothing(digest, changed):
    assert digest(changed, MEASURE) == digest(SOME, MEASURE)


@pytest.mark.parametrize(
    "changed",
    [
        edited("vitrail.scale", ("3", "4")),
        edited("vitrail.late", ("** 2", "** 3")),
        edited("vitrail.parts", ("x / 2", "y"), ("2 * x", "x / 2"), ("y", "2 * x")),
        edited("vitrail.parts", ("half", "y"), ("twice", "half"), ("y", "twice")),
        edited("vitrail.measures", ("* twice(x)", "* half(x)")),
        edited("vitrail.measures", ("half, twice", "twice as half, half as twice")),
        edited("vitrail.measures", ("return half(x)", "return helper(x)")),
        edited("vitrail.measures", ("vitrail.late import", "vitrail.parts import")),
        edited("vitrail.measures", ("    from vitrail.late import late\n", "")),
    ],
    ids=[
        *("constant", "exponent", "bodies traded", "names traded", "another is called"),
        *("imports traded", "another of the module", "another module", "no import"),
    ],
)
def test_what_is_computed_otherwise_changes_the_digest(digest, changed):
    assert digest(changed, MEASURE) != digest(SOME, MEASURE)


ONE, TWO = "def f(x):\n    return x\n", "def f(x):\n    return -x\n"


@pytest.mark.parametrize(
    ("statement", "used"),
    [("from vitrail.a import f\nimport vitrail.b", "f"), ("from vitrail import a, b", "a.f")],
)
def test_two_modules_that_trade_their_names_are_noticed(digest, statement, used):
    """Both are there before and after, and who imports them has the same text."""
    use = {"vitrail.use": f"{statement}\ndef measure(x):\n    return {used}(x)\n"}
    before = digest({**use, "vitrail.a": ONE, "vitrail.b": TWO}, "vitrail.use:measure")
    assert digest({**use, "vitrail.a": TWO, "vitrail.b": ONE}, "vitrail.use:measure") != before


@pytest.mark.parametrize(
    ("statement", "used"),
    [
        ("from vitrail import parts", "parts.f"),
        ("from vitrail import parts as p", "p.f"),
        ("import vitrail.parts", "vitrail.parts.f"),
        ("import vitrail.parts as p", "p.f"),
        ("from vitrail.parts import *", "f"),
        ("from . import parts", "parts.f"),
        ("from .parts import f", "f"),
    ],
)
def test_functions_that_trade_their_names_are_noticed_however_they_are_imported(
    digest, statement, used
):
    use = f"{statement}\ndef measure(x):\n    return {used}(x)\n"
    found = {
        digest(
            {"vitrail.__init__": "", "vitrail.use": use, "vitrail.parts": parts},
            "vitrail.use:measure",
        )
        for parts in (ONE + TWO.replace(" f", " g"), ONE.replace(" f", " g") + TWO)
    }
    assert len(found) == 2


def test_another_function_of_a_module_is_another_root(digest):
    half, twice = "vitrail.parts:half", "vitrail.parts:twice"
    assert digest(SOME, half) != digest(SOME, twice)
    assert digest(SOME, MEASURE, half, twice) != digest(SOME, MEASURE, twice, half)


def test_a_name_that_is_passed_on_means_what_it_does_where_it_is_defined(digest):
    modules = {
        "vitrail.use": "from vitrail.between import f\ndef measure(x):\n    return f(x)\n",
        "vitrail.between": "from vitrail.parts import f, g\n",
        "vitrail.parts": "def f(x):\n    return x\ndef g(x):\n    return -x\n",
    }
    before = digest(modules, "vitrail.use:measure")
    renamed = {name: with_words({"f": "h"}, text) for name, text in modules.items()}
    assert digest(renamed, "vitrail.use:measure") == before
    traded = modules | {"vitrail.between": "from vitrail.parts import f as g, g as f\n"}
    assert digest(traded, "vitrail.use:measure") != before


@pytest.mark.parametrize(
    "text",
    [
        f"{ONE}def g(f):\n    return f(1)\n",
        f"{ONE}f = f(2)\n",
        f"{ONE}__all__ = ['f']\n",
        f"@registered\n{ONE}",
        f"{ONE}class A:\n    def f(self):\n        return f(1)\n",
        "if 1:\n    def f(x):\n        return x\n",
        "class f:\n    pass\n",
        "f = 3\n",
        f"{ONE}try:\n    f(1)\nexcept TypeError as f:\n    raise\n",
        f"{ONE}match 1:\n    case f:\n        pass\n",
        f"{ONE}def g():\n    global f\n",
        f"{ONE}from elsewhere import f\n",
        f"{ONE}{TWO}",
    ],
)
def test_a_name_that_more_than_one_function_or_import_binds_stays(one_module, text):
    assert one_module(text) != one_module(with_words({"f": "h"}, text))


def test_one_name_of_two_imports_tells_which_is_where(digest):
    def text(first, second):
        return "".join(
            f"def {name}(x):\n    from vitrail.{module} import f\n    return f(x)\n"
            for name, module in (("a", first), ("b", second))
        )

    parts = {"vitrail.one": ONE, "vitrail.two": TWO}
    before = digest({**parts, "vitrail.use": text("one", "two")}, "vitrail.use:a")
    assert digest({**parts, "vitrail.use": text("two", "one")}, "vitrail.use:a") != before


def test_a_name_that_python_looks_up_stays(one_module):
    text = "def f(x):\n    return x\ndef {}(name):\n    return 3\n"
    assert one_module(text.format("__getattr__")) != one_module(text.format("get"))


def test_a_name_of_a_builtin_stays(digest):
    """Where it is not imported it means the builtin."""

    def found(name):
        use = f"def a(x):\n    from vitrail.parts import {name}\n    return {name}(x)\n"
        use += f"def b(x):\n    return {name}(x)\n"
        parts = with_words({"f": name}, ONE)
        return digest({"vitrail.use": use, "vitrail.parts": parts}, "vitrail.use:b")

    assert found("sum") != found("total")


def test_a_module_that_does_not_count_can_be_moved_and_changed(digest):
    use = "from vitrail.words import say\ndef measure(x):\n    say(x)\n    return x\n"
    words = "'Words.'\n\n# decides no number: it speaks\ndef say(x):\n    print(x)\n"
    before = digest({"vitrail.use": use, "vitrail.words": words}, "vitrail.use:measure")
    moved = {"vitrail.use": use.replace("words", "talk"), "vitrail.talk": f"{words}    print()\n"}
    assert digest(moved, "vitrail.use:measure") == before
    counted = {"vitrail.use": use, "vitrail.words": words.replace("# decides", "# says")}
    assert digest(counted, "vitrail.use:measure") != before


def test_modules_that_import_each_other_are_one_sentence(digest):
    modules = {
        "vitrail.a": "def f():\n    from vitrail.b import g\n",
        "vitrail.b": "from vitrail.a import f\n\ndef g(): pass\n",
    }
    with pytest.raises(VitrailError) as refused:
        digest(modules, "vitrail.a:f")
    assert "vitrail.a imports vitrail.b imports vitrail.a" in str(refused.value)
    assert digest(modules | {"vitrail.b": "def g(): pass\n"}, "vitrail.a:f")


def test_comments_and_docstrings_do_not_count_and_code_does(one_module):
    before = one_module('"""What it is."""\n\n\ndef f(x):\n    """Double."""\n    return 2 * x\n')
    assert one_module("def f(x):  # twice\n    return 2 * x\n") == before
    assert one_module("def f(x):\n    return 3 * x\n") != before
    assert one_module("def f(x):\n    'a text'\n    return 2 * x\n") == before
    assert one_module("def f(x):\n    y = 'a text'\n    return 2 * x\n") != before
    before = one_module("FEW = 2\nclass C:\n    most: int = 3\n")
    told = one_module("FEW = 2\n'Of two.'\nclass C:\n    most: int = 3\n    'Not four.'\n")
    assert told == before
    assert one_module("FEW = 3\nclass C:\n    most: int = 3\n") != before


def test_the_words_of_an_error_do_not_count_and_when_it_is_raised_does(one_module):
    before = one_module("def f(x):\n    if x < 0:\n        raise ValueError(f'{x} is below 0')\n")
    assert one_module("def f(x):\n    if x < 0:\n        raise ValueError('wrong')\n") == before
    assert one_module("def f(x):\n    if x < 1:\n        raise ValueError('wrong')\n") != before
    assert one_module("def f(x):\n    if x < 0:\n        raise TypeError('wrong')\n") != before
    before = one_module("def f(x):\n    assert x >= 0, 'it is below 0'\n")
    assert one_module("def f(x):\n    assert x >= 0\n") == before
    assert one_module("def f(x):\n    assert x > 0\n") != before


def test_what_a_measure_costs_does_not_count_and_other_decorators_do(one_module):
    before = one_module("def f(x):\n    return 2 * x\n")
    assert one_module("@passes(2)\ndef f(x):\n    return 2 * x\n") == before
    assert one_module("@passes(lambda given: given['n'])\ndef f(x):\n    return 2 * x\n") == before
    assert one_module("@passes(2)\ndef f(x):\n    return 3 * x\n") != before
    assert one_module("@doubled(2)\ndef f(x):\n    return 2 * x\n") != before


def test_types_of_functions_do_not_count_and_those_of_classes_do(one_module):
    before = one_module("def f(x, *more, y=1):\n    return 2 * x\n")
    typed = (
        "from collections.abc import Iterable\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from torch import Tensor\n"
        "def f(x: Tensor, *more: Iterable[int], y: int = 1) -> Tensor:\n    return 2 * x\n"
    )
    assert one_module(typed) == before
    assert one_module(typed.replace("int = 1", "int = 2")) != before
    assert one_module(f"import torch\n{typed}") != before
    chosen = "if TYPE_CHECKING:\n    A = int\nelse:\n    A = float\n"
    assert one_module(chosen) == one_module("A = float\n") != one_module("A = int\n")
    assert one_module("class A:\n    x: int\n") != one_module("class A:\n    x: float\n")


def test_a_module_that_is_not_python_is_one_sentence(one_module):
    with pytest.raises(VitrailError, match=r"module\.py is not valid Python .*correct it"):
        one_module("def f(:\n")
