"""What a run shows of itself.

metrics        counters of consumers and runs; batch_metrics: of streaming queries and loops over windows
meters         those of services and breakers
logs, tracing  the consumer and event in log records; spans
activity       which event each thread works on
"""
