"""The lock holds what the project asks for, and pip can check every file against it."""

import re
import tomllib

import pytest
import yaml

LOCKS = ["requirements.lock", "cuda.lock", "docs.lock"]


def packages(root, name):
    """What a lock says of each package: its version and its hashes."""
    text = (root / "envs" / name).read_text().replace("\\\n", " ")
    entries = [line.split() for line in text.splitlines() if line and line[0] != "#"]
    return {pin.partition("==")[0]: (pin.partition("==")[2], hashes) for pin, *hashes in entries}


def asked(lines):
    """The names of requirements, as a lock writes them."""
    names = [re.match(r"[\w.-]+", line)[0] for line in lines if line and line[0] != "#"]
    return {name.lower().replace("_", "-") for name in names}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_with_hashes(root, lock):
    for version, hashes in packages(root, lock).values():
        assert re.fullmatch(r"[\w.]+", version)  # no "+cpu": both builds of torch satisfy the pin
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)


def test_the_lock_holds_what_is_asked_for(root):
    lines = (root / "envs" / "requirements.in").read_text().splitlines()
    assert asked(lines) <= set(packages(root, "requirements.lock"))


def test_the_lock_holds_what_the_package_depends_on(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = asked([*project["dependencies"], *(line for extra in extras for line in extra)])
    locked = packages(root, "requirements.lock") | packages(root, "docs.lock")
    assert wanted - {"vitrail"} <= set(locked)


def test_the_lock_of_the_site_changes_no_other_pin(root):
    locked, site = packages(root, "requirements.lock"), packages(root, "docs.lock")
    shared = set(locked) & set(site)
    assert {name: site[name][0] for name in shared} == {name: locked[name][0] for name in shared}
    assert asked((root / "envs" / "docs.in").read_text().splitlines()) <= set(site)


def test_the_tools_that_build_packages_are_those_of_the_lock(root):
    lines = (root / "envs" / "build.txt").read_text().splitlines()
    tools = dict(line.split("==") for line in lines if line[0] != "#")
    locked = packages(root, "requirements.lock")
    assert {"setuptools", "wheel"} <= set(tools)
    for name in set(tools) & set(locked):
        assert tools[name] == locked[name][0]


def test_the_cuda_libraries_are_not_installed_where_torch_needs_none(root):
    assert not [n for n in packages(root, "requirements.lock") if n.startswith(("nvidia", "cuda"))]
    assert "nvidia-cublas" in packages(root, "cuda.lock")


def test_the_conda_environment_has_the_same_pins(root):
    environment = yaml.safe_load((root / "envs" / "environment.yml").read_text())
    pins = {name: pin for name, (pin, _) in packages(root, "requirements.lock").items()}
    pins["opencv-python"] = pins.pop("opencv-python-headless")
    assert dict(line.split("==") for line in environment["dependencies"][-1]["pip"]) == pins
