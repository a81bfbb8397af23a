"""The studies and measurements of the five papers; not part of the installed package."""
