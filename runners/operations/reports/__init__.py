"""Lists of runs, and pages about them."""
