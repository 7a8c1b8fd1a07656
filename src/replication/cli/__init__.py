"""The commands of the apparatus, each in the module of its name; `steps` has those of the graph."""

MODULES = (
    *("plan", "doctor", "show", "why", "status", "verify", "publish", "restore", "curves"),
    *("search", "register", "steps"),
)
