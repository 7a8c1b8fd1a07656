# What one asks for by name: one rule for each artifact, paper and collection.

for target in TARGETS.values():

    rule:
        name:
            target.name
        localrule: True
        input:
            list(map(str, target.files)),

    workflow.get_rule(target.name).docstring = target.caption


# `snakemake` alone makes everything.
workflow.default_target = "all"
