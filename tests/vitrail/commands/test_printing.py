"""How commands print tables."""

import io
import sys

import pytest

from vitrail import commands


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def lines_of(monkeypatch):
    """The lines that a table takes on a terminal of 40 columns."""

    def print_table(*given):
        printed = Terminal()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", "40")
            patch.setenv("TERM", "xterm")
            patch.setenv("NO_COLOR", "1")
            patch.setattr(sys, "stdout", printed)
            commands.table(*given)
        return [line.rstrip() for line in printed.getvalue().splitlines()]

    return print_table


def test_sentences_are_folded_beside_names_that_are_whole(lines_of):
    name = "swin_t-circular-b6e5071e"
    first, *others = lines_of(["run", "what"], [[name, "a sentence of several words"]])[2:-1]
    assert first.startswith(f"{name}  a sentence")
    assert "".join(others).split()[-1] == "words"
    assert len(first) <= 40


def test_names_that_do_not_fit_side_by_side_are_whole_all_the_same(lines_of):
    names = ["a" * 30, "b" * 30]
    assert "  ".join(names) in lines_of(["one", "two"], [names])


@pytest.mark.parametrize(
    ("encoding", "name", "printed"),
    [
        ("utf-8", "caf\udce9 \u732b", "caf\\udce9 \u732b"),  # a byte that is no UTF-8
        ("latin-1", "caf\xe9 \u732b", "caf\xe9 \\u732b"),
        ("ascii", "90\xb0", "90\\xb0"),
    ],
)
def test_what_a_terminal_has_no_letters_for_is_written_as_codes(
    monkeypatch, encoding, name, printed
):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", terminal)
    commands.say(name)
    commands.table(("name",), [(name,)])
    terminal.flush()
    assert terminal.buffer.getvalue().decode(encoding).count(printed) == 2
