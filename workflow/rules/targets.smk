# What one asks for by name: one rule for each artifact, paper and collection.

for target in TARGETS.values():

    rule:
        name:
            target.name
        input:
            list(map(str, target.files)),
        localrule: True

    workflow.get_rule(target.name).docstring = target.caption
