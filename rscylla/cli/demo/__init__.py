"""The command ``rscylla demo`` and its parts."""
