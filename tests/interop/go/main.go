// Command interop lets Scylla's Go driver and Go CDC library work against a cluster, for test_interop.py.
//
//	interop HOST PORT KEYSPACE schema            run the DDL on standard input
//	interop HOST PORT KEYSPACE write             run the workload of write.go
//	interop HOST PORT KEYSPACE more AFTER        once it is later than AFTER, write a row to each of some partitions of
//	                                             the table many
//	interop HOST PORT KEYSPACE read SINCE LAG N  print the logs of the tables named in the first line of standard input,
//	                                             from SINCE, through N generations, to the time at which that input
//	                                             ends; always stay LAG behind
//	interop HOST PORT KEYSPACE route             for each line on standard input, write to each of some partitions of the
//	                                             table routed, and answer with a line
//
// Times and the lag are milliseconds. INTEROP_USER and INTEROP_PASSWORD log in; INTEROP_CA, INTEROP_CERT and INTEROP_KEY are the
// files of mutual TLS. INTEROP_PROGRESS is a table in which the library keeps how far it has read, to go on from there.
//
// A log row is one line of JSON on standard output: its columns by name, null ones left out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"
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
		return fmt.Errorf("expected HOST PORT KEYSPACE schema|write|more|read|route, got %d arguments", len(args))
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
	case args[3] == "schema":
		return createSchema(session)
	case args[3] == "write":
		return write(session)
	case args[3] == "route":
		return route(session)
	case args[3] == "more" && len(args) == 5:
		after, err := instant(args[4])
		if err != nil {
			return err
		}
		time.Sleep(time.Until(after.Add(time.Millisecond)))
		return writeMore(session)
	case args[3] == "read" && len(args) == 7:
		return readAll(session, args[2], args[4], args[5], args[6])
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
	if user := os.Getenv("INTEROP_USER"); user != "" {
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: user, Password: os.Getenv("INTEROP_PASSWORD")}
	}
	if ca := os.Getenv("INTEROP_CA"); ca != "" {
		cluster.SslOpts = &gocql.SslOptions{
			CaPath: ca, CertPath: os.Getenv("INTEROP_CERT"), KeyPath: os.Getenv("INTEROP_KEY"), EnableHostVerification: true,
		}
	}
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

// route writes one row after the other, so that what the driver learns from an answer is known to the next request.
func route(session *gocql.Session) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		for pk := range routedPartitions {
			if err := session.Query("INSERT INTO routed (pk, v) VALUES (?, ?)", pk, pk).Exec(); err != nil {
				return err
			}
		}
		fmt.Println("written")
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

// readAll prints all logs at once, with a reader for each: the library takes several tables only where they share
// streams.
func readAll(session *gocql.Session, keyspace, from, behind, generations string) error {
	since, err := instant(from)
	if err != nil {
		return err
	}
	lag, err := time.ParseDuration(behind + "ms")
	if err != nil {
		return fmt.Errorf("LAG is no number: %w", err)
	}
	count, err := strconv.Atoi(generations)
	if err != nil || count < 1 {
		return fmt.Errorf("N is no number of generations: %q", generations)
	}
	input := bufio.NewReader(os.Stdin)
	names, err := input.ReadString('\n')
	if err != nil {
		return fmt.Errorf("no names of tables: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, input)
	}()
	output := &printer{out: json.NewEncoder(os.Stdout)}
	readers, ctx := errgroup.WithContext(context.Background())
	for _, name := range strings.Fields(names) {
		readers.Go(func() error {
			if err := read(ctx, session, keyspace+"."+name, since, lag, count, ended, output); err != nil {
				return fmt.Errorf("table %s: %w", name, err)
			}
			return nil
		})
	}
	return readers.Wait()
}
