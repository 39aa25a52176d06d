"""What a CDC log is: its tables, options, generations, clocks and lifetimes, and where to read next."""
