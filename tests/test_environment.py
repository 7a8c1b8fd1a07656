"""The pins are written once for pip and once for conda, and hold what the project asks for."""

import re

import yaml


def pins(root):
    lines = (root / "envs" / "requirements.lock").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_package_is_pinned(root):
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins(root))


def test_the_conda_environment_has_the_same_pins(root):
    environment = yaml.safe_load((root / "envs" / "environment.yml").read_text())
    assert environment["dependencies"][-1]["pip"] == pins(root)


def test_the_lock_holds_what_is_asked_for(root):
    lines = (root / "envs" / "requirements.in").read_text().splitlines()
    asked = {re.split(r"[=<>]", line)[0].lower() for line in lines if line and line[0] != "#"}
    assert asked <= {pin.split("==")[0].lower() for pin in pins(root)}


def test_torch_is_pinned_without_a_build(root):
    """The CPU and the CUDA build satisfy the same pin."""
    assert not any("+" in pin for pin in pins(root))
