// Command interop lets Scylla's Go driver and Go CDC library work against a cluster, for test_interop.py.
//
//	interop HOST PORT KEYSPACE write            run the DDL on standard input, then the workload of write.go
//	interop HOST PORT KEYSPACE more AFTER       once it is later than AFTER (milliseconds), write a row to each of some
//	                                            partitions of the table many
//	interop HOST PORT KEYSPACE read SINCE N     print the logs of the tables named on standard input, through N
//	                                            generations, from SINCE (milliseconds) until now
//
// A log row is one line of JSON on standard output: its columns by name, null ones left out.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// The server under test is a process on this machine; what takes longer than this hangs.
const patience = 30 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 4 {
		return fmt.Errorf("expected HOST PORT KEYSPACE write|more|read, got %d arguments", len(args))
	}
	port, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("the port is no number: %w", err)
	}
	session, err := connect(args[0], port, args[2])
	if err != nil {
		return fmt.Errorf("cannot connect: %w", err)
	}
	defer session.Close()
	switch {
	case args[3] == "write":
		if err := createSchema(session); err != nil {
			return err
		}
		return write(session)
	case args[3] == "more" && len(args) == 5:
		after, err := instant(args[4])
		if err != nil {
			return err
		}
		time.Sleep(time.Until(after.Add(time.Millisecond)))
		return writeMore(session)
	case args[3] == "read" && len(args) == 6:
		return readAll(session, args[2], args[4], args[5])
	}
	return fmt.Errorf("no command %q with %d arguments", args[3], len(args)-4)
}

func connect(host string, port int, keyspace string) (*gocql.Session, error) {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	cluster.Keyspace = keyspace
	cluster.Timeout = patience
	cluster.ConnectTimeout = patience
	cluster.Consistency = gocql.LocalQuorum
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	cluster.PageSize = 500 // the table many is then read in several pages
	return cluster.CreateSession()
}

// createSchema runs the statements on standard input, which end with semicolons, one after the other.
func createSchema(session *gocql.Session) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	for _, statement := range strings.Split(string(text), ";") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if err := session.Query(statement).Exec(); err != nil {
			return fmt.Errorf("DDL was refused: %w", err)
		}
	}
	return nil
}

func instant(text string) (time.Time, error) {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the time is no number: %w", err)
	}
	return time.UnixMilli(ms), nil
}

// readAll prints one log after the other: the library takes several tables at once only where they share streams.
func readAll(session *gocql.Session, keyspace, text, generations string) error {
	since, err := instant(text)
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(generations)
	if err != nil || count < 1 {
		return fmt.Errorf("N is no number of generations: %q", generations)
	}
	names, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(names)) {
		if err := read(session, keyspace+"."+name, since, count); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	return nil
}
