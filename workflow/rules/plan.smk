# Planning: the catalogue of everything that can be made, and a rule for every target that has a
# name (artifact, paper, collection).

from replication import report
from replication.config.datasets import fetched_with
from replication.config.weights import find_weights, load_weights_registry
from replication.jobs import fork_server
from replication.plan.catalog import Catalog, is_target_name
from replication.records.specs import Artifact, target_of
from vitrail.provenance import require_own_package

GIVEN = get_argument_parser().parse_known_args(sys.argv[1:])[0]  # the arguments of the command line
if GIVEN.no_hooks:
    stop("--no-hooks leaves out the hook that writes the nodes of jobs; start without --no-hooks")

try:
    require_own_package(Path())
    CATALOG = Catalog(Path(), SETTINGS)
    TARGETS = CATALOG.targets
    CATALOG.require_code(CATALOG.artifacts)
    CATALOG.require_weights(CATALOG.artifacts)
except VitrailError as error:
    stop(error)

DATA, RESULTS = CATALOG.data_root, CATALOG.results
WEB = sorted(Path(report.__file__).with_name("web").iterdir())  # template, style, script


wildcard_constraints:
    paper="|".join(CATALOG.papers),


def fetched_before(wildcards):
    """The receipt of the dataset that is made of the same files, if that comes first."""
    first = fetched_with(wildcards.dataset, CATALOG.datasets)
    return [] if first == wildcards.dataset else [str(CATALOG.receipt_of(first))]


def published_entry(wildcards):
    """What the registry says of published weights: where that changes, they are fetched again."""
    return find_weights(wildcards.name, load_weights_registry()).model_dump_json()


def names_of(kind):
    """A pattern that matches the names of all artifacts of a kind."""
    names = {artifact.name for artifact in CATALOG.everything if artifact.kind == kind}
    return "|".join(sorted(names)) or "(?!)"


for target in TARGETS.values():

    rule:
        name:
            target.name
        input:
            list(map(str, target.files)),
        localrule: True

    workflow.get_rule(target.name).docstring = target.caption


# For an unknown target, Snakemake's own message would only say that no rule makes it.
for name in GIVEN.targets:
    if is_target_name(name) and not workflow.is_rule(name) and not Path(name).exists():
        try:
            CATALOG.target(name)
        except VitrailError as error:
            stop(error)
    if not is_target_name(name) and not CATALOG.makes(Path(name)):
        stop(
            f"'{name}' is no file that scale '{CATALOG.scale.name}' makes; name a target "
            f"({CATALOG.snakemake('--list-target-rules')}) or one of its files"
        )
