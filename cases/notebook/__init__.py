"""What a cell shows, and what runs the notebooks: the only folder that needs Jupyter."""
