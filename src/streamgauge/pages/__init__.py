"""One HTML template, one palette and one set of plot functions for every page."""
