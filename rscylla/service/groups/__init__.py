"""Groups of processes that share slices: balance, slices that come and go, and the lanes of them."""
