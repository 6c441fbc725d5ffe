"""The command line `seglog`: one module per verb; `main` dispatches, `render` draws."""
