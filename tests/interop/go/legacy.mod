module rscylla/interop

go 1.25.0

require (
	github.com/gocql/gocql v1.14.4
	github.com/scylladb/scylla-cdc-go v1.1.0
	golang.org/x/sync v0.20.0
	gopkg.in/inf.v0 v0.9.1
)

require (
	github.com/golang/snappy v0.0.3 // indirect
	github.com/hailocab/go-hostpool v0.0.0-20160125115350-e80d13ce29ed // indirect
)

replace github.com/gocql/gocql => github.com/scylladb/gocql v1.14.4
