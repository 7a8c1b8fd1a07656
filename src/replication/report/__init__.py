"""Tables and figures from measurements: what was measured beside what was printed.

`comparison` judges each cell, `numbers` writes it as text, `tables` and the papers' own draw
functions (in the style of `vitrail.style`) render them, `claims` tests a paper's statements on
them, `report` gathers a scale's results and `page` writes them.
Nothing here knows a paper, and nothing here imports torch.
"""
