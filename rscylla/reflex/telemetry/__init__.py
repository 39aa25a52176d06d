"""What a run shows of itself.

collector      tables of families, and what there is once for each registry
series         of a consumer and its runs; metrics: its families
batch_metrics  of streaming queries and loops over windows
meters         those of services and breakers
logs, tracing  the consumer and event in log records; spans
activity       which event each thread works on
"""
