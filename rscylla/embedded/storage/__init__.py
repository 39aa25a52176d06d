"""Where rows live: partitions in token order, mutations, and the rules by which two writes become one."""
