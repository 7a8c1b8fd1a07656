"""What the README tells a reader to type runs."""

import re
import subprocess
import sys


def test_the_snippet_of_the_method_runs(root):
    """As written, but for the weights, which would have to be fetched."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    code = snippet.replace("pretrained=True", "pretrained=False")
    assert code != snippet
    code += "assert larger.pos_embed.shape == (1, 34 * 34 + 1, 768)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_target_of_the_readme_exists(root):
    from vitrine.catalog import load_catalog

    named = set(re.findall(r"`(\w+_(?:table|fig|sweep)\w*)`", (root / "README.md").read_text()))
    assert named
    assert named <= set(load_catalog(root).targets)


def test_every_linked_file_exists(root):
    for page in ("README.md", "CONTRIBUTING.md"):
        links = re.findall(r"\]\((?!http)([^)#]+)\)", (root / page).read_text())
        assert links
        assert [link for link in links if not (root / link).exists()] == []
