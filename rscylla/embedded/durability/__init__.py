"""How data outlives the process: a log of all changes, snapshots, and the lock of a data directory."""
