"""Sessions: with the cluster, with Spark, and what Spark shows of its work."""
