"""The source: reads CDC logs. topology -> plan -> query -> scan -> rows -> changes -> stream."""
