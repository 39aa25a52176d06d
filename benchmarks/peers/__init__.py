"""Readers of CDC logs side by side: rscylla's, the plain driver, and Scylla's own libraries for Go, Rust, and Java."""
