"""What a cell shows, and what runs the notebooks: the only folder that needs Jupyter.

Begin at `lesson`, what a notebook's cells call, and `runner`, which `make run` calls. `panel`,
`box` and `sortable` are widgets, each with a table of the same; `table`, `figures` and `history`
are drawn from outcomes; `exercise` judges what a reader did. `errors_page` and `papers` write
pages.
It may import all else; nothing imports it but the tests.
"""
