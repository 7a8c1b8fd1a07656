"""Sphinx's configuration: the site of README, docs/, deviations and the API (`make docs`)."""

import ast
import posixpath
import re
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # tools/ is no part of the package

from replication.config.settings import known_scales  # noqa: E402
from replication.plan.catalog import load_catalog  # noqa: E402
from replication.publishing.publish import published_results  # noqa: E402
from replication.report.html_report import as_html  # noqa: E402
from replication.report.ledger import published_folder, published_papers, read_published  # noqa: E402
from tools import demo, reference  # noqa: E402

RELATIVE = re.compile(r"\]\((?!\w+:|#)([^)\s]+)")
LISTED = re.compile(r"\]\(\.\./\.\./((?:src|tests)/[\w/]+\.py)(?:#([\w.]+))?\)")

project = "Vitrail"
release = metadata.version("vitrail")
extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]

# The sources are the repository's root, so that links between files need no change.
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**",
    "envs/README.md",
    "configs/papers/*/deviations.md",
    "results/published/*/report.md",
    "results/published/*/*/*.md",
]
exclude_patterns = ["README.md"]  # the start page includes it
myst_heading_anchors = 4
# Links to folders, which a site does not have; tables, which the report leads to; names of two.
suppress_warnings = ["myst.xref_missing", "toc.not_included", "ref.python"]

apidoc_modules = [{"path": "../src/vitrail", "destination": "docs/api", "separate_modules": True}]
apidoc_exclude_patterns = ["**/__main__.py"]
if find_spec("triton") is None:  # as beside the CPU build of torch
    apidoc_exclude_patterns.append("**/octic/kernels.py")
napoleon_use_ivar = True  # else attributes stand twice
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures show them
default_role = "py:obj"  # `name` in a docstring is a link where there is such a name

html_theme = "furo"
html_title = "Vitrail"
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_copyright = False

# What the equation pages link to is listed in code/, with a line for each symbol to lead to.
myst_url_schemes = {
    **dict.fromkeys(["http", "https", "mailto"]),
    "code": {"url": "../../code/{{path}}.html#{{fragment}}"},
}


def lines_of(source):
    """Return the line where each class and function of a module begins, by its qualified name."""
    found, waiting = {}, [("", ast.parse(source))]
    while waiting:
        prefix, node = waiting.pop()
        for child in getattr(node, "body", []):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                found[prefix + child.name] = child.lineno
                waiting.append((f"{prefix}{child.name}.", child))
    return found


def link_to_lines(app, docname, source):
    """Let the links of an equation page lead to the lines of what they name."""
    if not docname.startswith("docs/equations/"):
        return

    def link(found):
        path, symbol = found.groups()
        app.listed_code.add(path)
        line = lines_of((ROOT / path).read_text(encoding="utf-8"))[symbol] if symbol else 1
        return f"](code:{path}#L-{line})"

    source[0] = LISTED.sub(link, source[0])


def keep_links(app, path, parent, content):
    """Let the links of an included page lead from the page that includes it to the same files."""
    here = PurePosixPath(app.env.docname).parent
    if path.suffix == ".md":
        content[0] = RELATIVE.sub(
            lambda found: f"]({posixpath.relpath(posixpath.join(path.parent, found[1]), here)}",
            content[0],
        )


def list_code(app, exception):
    """Write the listings that equation pages link to."""
    for path in app.listed_code if exception is None else ():
        page = Path(app.outdir) / "code" / f"{path}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        form = HtmlFormatter(full=True, title=path, linenos="inline", lineanchors="L")
        code = (ROOT / path).read_text(encoding="utf-8")
        page.write_text(highlight(code, PythonLexer(), form), encoding="utf-8")


def write_reference(app):
    """Write the pages that code and schemas decide, which git ignores; delete those of the past."""
    pages = {ROOT / "docs" / name: page for name, page in reference.pages().items()}
    for path in {*(ROOT / "docs" / "commands").glob("*.md")} - {*pages}:
        path.unlink()
    for path, page in pages.items():
        path.parent.mkdir(exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != page:
            path.write_text(page, encoding="utf-8")


def write_report(app, exception):
    """Write a page of all published results of each scale, which the start page leads to."""
    for scale in known_scales(ROOT) if exception is None else ():
        catalog = load_catalog(ROOT, scale=scale)
        if not published_papers(catalog):
            continue
        published = published_folder(catalog)
        page = as_html(published_results(catalog, published, read_published(published)))
        (Path(app.outdir) / "docs" / f"{scale}.html").write_text(page, encoding="utf-8")


def write_demo(app, exception):
    """Add the page on which small models run in the browser."""
    if exception is None and not demo.build(ROOT, Path(app.outdir) / "docs" / "demo"):
        print("the demo's page lacks its models' runtime: npm is missing or did not bring it")


def setup(app):
    """Connect what is written before, while and after pages are read."""
    app.listed_code = set()
    app.connect("builder-inited", write_reference)
    app.connect("source-read", link_to_lines)
    app.connect("include-read", keep_links)
    app.connect("build-finished", list_code)
    app.connect("build-finished", write_report)
    app.connect("build-finished", write_demo)
