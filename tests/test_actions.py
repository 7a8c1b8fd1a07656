"""The workflows of GitHub Actions, as far as they can be checked without its runners."""

import re
import tomllib

import pytest
import yaml
from packaging.specifiers import SpecifierSet


@pytest.fixture(scope="module")
def workflows(root):
    files = sorted((root / ".github" / "workflows").glob("*.yml"))
    assert files
    return {file.name: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}


def jobs(workflows):
    return {
        f"{file}/{name}": job for file, w in workflows.items() for name, job in w["jobs"].items()
    }


def test_every_action_and_container_is_pinned_by_digest(workflows):
    for name, job in jobs(workflows).items():
        used = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in used), name
        assert re.fullmatch(
            r"\w+@sha256:[0-9a-f]{64}", job.get("container", "a@sha256:" + 64 * "0")
        )


def test_no_job_may_write(workflows):
    for workflow in workflows.values():
        assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in jobs(workflows).values())


def test_other_platforms_are_tested_and_the_container_is_built(workflows):
    runners, commands = set(), []
    for job in jobs(workflows).values():
        rows = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
        runners |= {row.get("os", job["runs-on"]) for row in rows}
        commands += [step["run"] for step in job["steps"] if "run" in step]
    for system in (r"ubuntu-[\d.]+", r"ubuntu-[\d.]+-arm", r"macos-\d+"):
        assert any(re.fullmatch(system, runner) for runner in runners), system
    for command in (r"docker build .*envs/Dockerfile", r"docker run .* snakemake "):
        assert any(re.search(command, line) for line in commands), command


def test_every_job_ends_in_time(workflows):
    assert all(job["timeout-minutes"] <= 90 for job in jobs(workflows).values())


def test_the_targets_of_make_exist(workflows, root):
    targets = set(re.findall(r"^([\w-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    commands = [
        step["run"] for job in jobs(workflows).values() for step in job["steps"] if "run" in step
    ]
    assert ".ci/run" in commands
    commands.append((root / ".ci" / "run").read_text())
    asked = {
        target
        for command in commands
        for target in re.findall(r"^(?:as_a_new_user )?make ([\w-]+)", command, re.MULTILINE)
    }
    assert {"test-all", "lint", "docs", "test-cluster", "test-lower-bounds"} <= asked <= targets


def test_the_pythons_are_those_that_the_project_allows(workflows, root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    allowed = SpecifierSet(project["requires-python"])
    tested = set()
    for job in jobs(workflows).values():
        rows = job.get("strategy", {}).get("matrix", {}).get("include", [])
        tested |= {row["python"] for row in rows}
        asked = [step["with"]["python-version"] for step in job["steps"] if "with" in step]
        tested |= {version for version in asked if "matrix" not in version}
    assert {"3.11", "3.13"} <= tested
    assert all(f"{version}.9" in allowed for version in tested)


def test_what_a_marker_leaves_out_of_make_test_runs_in_ci(root):
    """Some target of make that CI calls for all tests selects the tests with this marker."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]
    markers = {line.partition(":")[0] for line in settings["ini_options"]["markers"]}
    makefile = (root / "Makefile").read_text()
    recipes = dict(re.findall(r"^([\w-]+):.*\n((?:\t.*\n)*)", makefile, re.MULTILINE))
    steps = (root / ".ci" / "run").read_text().replace("\\\n", "").splitlines()
    called = [name for line in steps for name in re.findall(r"\bmake ([\w-]+)(?!.*TESTS)", line)]
    selections = [
        selection
        for name in called
        for selection in re.findall(r'(?:pytest|PYTEST\)) -m ("[^"]+"|\w+)', recipes.get(name, ""))
    ]
    for marker in markers:
        values = {other: other == marker for other in markers}
        assert any(eval(selection.strip('"'), {}, values) for selection in selections), marker
