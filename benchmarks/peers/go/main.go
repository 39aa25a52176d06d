// Command reader reads CDC logs through Scylla's Go library and tells what that cost, for benchmarks/compare.py and
// benchmarks/follow.py.
//
//	reader HOST PORT KEYSPACE
//
// Each line on standard input is a pass, "TABLE KIND ROWS SINCE": read the log of the table from that time, milliseconds
// since the epoch, until there were ROWS rows. KIND says what the consumer does with each row: "count" nothing, "key" read
// the primary key, "cells" read every column of the table. The answer is a line of JSON.
//
// KIND "follow:LAG:PAUSE" follows the log for ROWS seconds, LAG milliseconds behind, with PAUSE milliseconds between queries
// or, if that is 0, with the library's defaults. The answer has how long each row was on its way: the column n says when it
// was written, in microseconds since the epoch.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

const (
	patience = 10 * time.Minute
	pause    = 10 * time.Millisecond
	lag      = time.Millisecond
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("expected HOST PORT KEYSPACE, got %d arguments", len(args))
	}
	port, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("the port is no number: %w", err)
	}
	cluster := gocql.NewCluster(args[0])
	cluster.Port = port
	cluster.Timeout = time.Minute
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	session, err := cluster.CreateSession()
	if err != nil {
		return fmt.Errorf("cannot connect: %w", err)
	}
	defer session.Close()
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var table, kind string
		var rows, since int64
		if _, err := fmt.Sscan(lines.Text(), &table, &kind, &rows, &since); err != nil {
			return fmt.Errorf("not a pass: %q: %w", lines.Text(), err)
		}
		var found any
		if settings, follows := strings.CutPrefix(kind, "follow:"); follows {
			found, err = follow(session, args[2]+"."+table, settings, time.Duration(rows)*time.Second, time.UnixMilli(since))
		} else {
			found, err = pass(session, args[2]+"."+table, kind, rows, time.UnixMilli(since))
		}
		if err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
		if err := answers.Encode(found); err != nil {
			return err
		}
	}
	return lines.Err()
}

// answer tells what a pass found: the rows, the sum of ck for "key", the columns that are not null for "cells".
type answer struct {
	Rows  int64   `json:"rows"`
	Check int64   `json:"check"`
	CPU   float64 `json:"cpu_s"`
	Wall  float64 `json:"wall_s"`
}

func pass(session *gocql.Session, table, kind string, rows int64, since time.Time) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began, cpu := time.Now(), cpuTime()
	tally := &tally{kind: kind, wanted: rows, done: make(chan struct{})}
	reader, err := scyllacdc.NewReader(ctx, &scyllacdc.ReaderConfig{
		Session:               session,
		TableNames:            []string{table},
		ChangeConsumerFactory: scyllacdc.MakeChangeConsumerFactoryFromFunc(tally.consume),
		ProgressManager:       from{since},
		Advanced: scyllacdc.AdvancedReaderConfig{
			ConfidenceWindowSize:   lag,
			PostNonEmptyQueryDelay: pause,
			PostEmptyQueryDelay:    pause,
			PostFailedQueryDelay:   pause,
			QueryTimeWindowSize:    24 * time.Hour,
		},
	})
	if err != nil {
		return answer{}, fmt.Errorf("cannot make a reader: %w", err)
	}
	var found answer
	go func() {
		select {
		case <-tally.done:
			found = answer{tally.rows.Load(), tally.check.Load(), (cpuTime() - cpu).Seconds(), time.Since(began).Seconds()}
			reader.Stop()
		case <-ctx.Done():
		}
	}()
	if err := reader.Run(ctx); err != nil {
		return answer{}, err
	}
	return found, nil
}

// arrivals says how many milliseconds after it was written each row was delivered.
type arrivals struct {
	Delays []float64 `json:"delays_ms"`
}

func follow(session *gocql.Session, table, settings string, during time.Duration, since time.Time) (arrivals, error) {
	var lagMs, pauseMs int64
	if _, err := fmt.Sscanf(settings, "%d:%d", &lagMs, &pauseMs); err != nil {
		return arrivals{}, fmt.Errorf("not settings: %q: %w", settings, err)
	}
	wait := time.Duration(pauseMs) * time.Millisecond
	var mutex sync.Mutex
	found := arrivals{Delays: []float64{}}
	consume := func(_ context.Context, _ string, change scyllacdc.Change) error {
		now := time.Now().UnixMicro()
		mutex.Lock()
		defer mutex.Unlock()
		for _, row := range change.Delta {
			written, _ := row.GetValue("n")
			found.Delays = append(found.Delays, float64(now-*written.(*int64))/1e3)
		}
		return nil
	}
	reader, err := scyllacdc.NewReader(context.Background(), &scyllacdc.ReaderConfig{
		Session:               session,
		TableNames:            []string{table},
		ChangeConsumerFactory: scyllacdc.MakeChangeConsumerFactoryFromFunc(consume),
		ProgressManager:       from{since},
		Advanced: scyllacdc.AdvancedReaderConfig{
			ConfidenceWindowSize:   time.Duration(lagMs) * time.Millisecond,
			PostNonEmptyQueryDelay: wait,
			PostEmptyQueryDelay:    wait,
		},
	})
	if err != nil {
		return arrivals{}, fmt.Errorf("cannot make a reader: %w", err)
	}
	time.AfterFunc(during, reader.Stop)
	if err := reader.Run(context.Background()); err != nil {
		return arrivals{}, err
	}
	mutex.Lock()
	defer mutex.Unlock()
	return found, nil
}

// tally counts. Consumers of several streams share it.
type tally struct {
	kind        string
	wanted      int64
	rows, check atomic.Int64
	columns     atomic.Pointer[[]string]
	done        chan struct{}
}

func (t *tally) consume(_ context.Context, _ string, change scyllacdc.Change) error {
	rows, check := int64(0), int64(0)
	for _, of := range [][]*scyllacdc.ChangeRow{change.PreImage, change.Delta, change.PostImage} {
		rows += int64(len(of))
		switch t.kind {
		case "key":
			for _, row := range of {
				check += key(row)
			}
		case "cells":
			for _, row := range of {
				check += cells(row, t.columnsOf(row))
			}
		}
	}
	if check != 0 {
		t.check.Add(check)
	}
	if t.rows.Add(rows) == t.wanted {
		close(t.done)
	}
	return nil
}

// columnsOf returns the columns of the base table.
func (t *tally) columnsOf(row *scyllacdc.ChangeRow) []string {
	if known := t.columns.Load(); known != nil {
		return *known
	}
	var names []string
	for _, column := range row.Columns() {
		if !strings.HasPrefix(column.Name, "cdc$") {
			names = append(names, column.Name)
		}
	}
	t.columns.Store(&names)
	return names
}

func key(row *scyllacdc.ChangeRow) int64 {
	pk, _ := row.GetValue("pk")
	ck, _ := row.GetValue("ck")
	if *pk.(*int) < 0 {
		return 0
	}
	return *ck.(*int64)
}

// cells returns the number of columns that have a value. The library has decoded them already.
func cells(row *scyllacdc.ChangeRow, columns []string) int64 {
	found := int64(0)
	for _, name := range columns {
		value, _ := row.GetValue(name)
		if !null(value) {
			found++
		}
	}
	return found
}

func null(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case *int:
		return value == nil
	case *int64:
		return value == nil
	case *float64:
		return value == nil
	case *bool:
		return value == nil
	case *string:
		return value == nil
	case *gocql.UUID:
		return value == nil
	case *time.Time:
		return value == nil
	case []byte:
		return value == nil
	}
	return reflect.ValueOf(value).IsNil()
}

// from starts a reader at a time and keeps no progress.
type from struct{ since time.Time }

func (f from) GetCurrentGeneration(context.Context) (time.Time, error) { return time.Time{}, nil }

func (f from) StartGeneration(context.Context, time.Time) error { return nil }

func (f from) GetApplicationReadStartTime(context.Context) (time.Time, error) { return f.since, nil }

func (f from) SaveApplicationReadStartTime(context.Context, time.Time) error { return nil }

func (f from) GetProgress(context.Context, time.Time, string, scyllacdc.StreamID) (scyllacdc.Progress, error) {
	return scyllacdc.Progress{}, nil
}

func (f from) SaveProgress(context.Context, time.Time, string, scyllacdc.StreamID, scyllacdc.Progress) error {
	return nil
}

// cpuTime returns what all threads of this process have used so far.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
