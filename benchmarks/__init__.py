"""How fast, against whom: one file a question; see README.md."""
