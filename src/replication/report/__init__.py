"""Tables, figures and the report of a scale, made from measurements.

`formatting` writes each number as text. `tables`, together with the papers' own drawing functions
(in the style of `vitrail.style`), renders artifacts. `results` collects the results of a scale;
`html_report` and `markdown_report` write its report. Numbers and claims are judged before, in
`replication.claims`. Nothing here names a paper, and nothing here imports torch.
"""
