"""A plug-in that ends the process when it is loaded."""

raise SystemExit("not here")
