# Planning: the catalogue of everything that can be made, and one rule for each thing one may ask for
# by name (artifact, paper, collection).

from vitrine.plan.catalog import is_target_name, load_catalog
from vitrine.provenance import require_own_package

try:
    require_own_package(Path())
    CATALOG = load_catalog(**config)
    TARGETS = CATALOG.targets
except VitrineError as error:
    stop(error)

DATA, RESULTS = CATALOG.data_root, CATALOG.results


wildcard_constraints:
    paper="|".join(CATALOG.papers),


for target in TARGETS.values():

    rule:
        name:
            target.name
        input:
            list(map(str, target.files)),
        localrule: True

    workflow.get_rule(target.name).docstring = target.caption


# Snakemake would say of an unknown target only that no rule makes it.
for name in get_argument_parser().parse_known_args(sys.argv[1:])[0].targets:
    if is_target_name(name) and not workflow.is_rule(name) and not Path(name).exists():
        stop(f"target '{name}' is unknown{did_you_mean(name, TARGETS)}")
