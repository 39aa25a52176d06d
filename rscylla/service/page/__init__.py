"""The page of a service: its status as a document, its history, and what a browser shows of them."""
