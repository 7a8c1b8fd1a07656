"""Tables, figures and the report of a scale, from measurements.

`formatting` writes each number as text; `tables`, and the papers' own functions that draw (in the
style of `vitrail.style`), render it. `results` gathers the results of a scale, `html_report` and
`markdown_report` write its report. `replication.claims` judges numbers and claims before that.
Nothing here knows a paper, and nothing here imports torch.
"""
