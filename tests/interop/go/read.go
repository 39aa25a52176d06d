package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

// read prints the log of a table. Once it is in the last of the generations, and ended is closed, it goes on to the time
// of that and stops.
func read(
	ctx context.Context, session *gocql.Session, table string,
	since time.Time, lag time.Duration, generations int, ended <-chan struct{}, output *printer,
) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	kept, err := progressOf(session, table)
	if err != nil {
		return fmt.Errorf("cannot keep progress: %w", err)
	}
	progress := &countdown{ProgressManager: kept, left: generations, since: since, done: make(chan struct{})}
	config := scyllacdc.ReaderConfig{
		Session:               session,
		TableNames:            []string{table},
		ChangeConsumerFactory: output,
		ProgressManager:       progress,
		Advanced: scyllacdc.AdvancedReaderConfig{
			ConfidenceWindowSize:   lag,
			PostNonEmptyQueryDelay: 20 * time.Millisecond,
			PostEmptyQueryDelay:    20 * time.Millisecond,
			PostFailedQueryDelay:   20 * time.Millisecond,
			QueryTimeWindowSize:    time.Hour,
		},
	}
	lookOften(&config.Advanced)
	reader, err := scyllacdc.NewReader(ctx, &config)
	if err != nil {
		return fmt.Errorf("cannot make a reader: %w", err)
	}
	go func() {
		for _, event := range []<-chan struct{}{ended, progress.done} {
			select {
			case <-event:
			case <-ctx.Done():
				return
			}
		}
		reader.StopAt(time.Now())
	}()
	return reader.Run(ctx)
}

// countdown closes done in the last generation. It leaves progress to another manager, but for where to start.
type countdown struct {
	scyllacdc.ProgressManager
	left  int
	since time.Time
	done  chan struct{}
}

func (c *countdown) GetApplicationReadStartTime(context.Context) (time.Time, error) {
	return c.since, nil
}

func (c *countdown) SaveApplicationReadStartTime(context.Context, time.Time) error { return nil }

func (c *countdown) StartGeneration(ctx context.Context, time time.Time) error {
	if c.left--; c.left == 0 {
		close(c.done)
	}
	return c.ProgressManager.StartGeneration(ctx, time)
}

// progressOf returns what keeps the progress with a log: the library's own table if INTEROP_PROGRESS names one.
func progressOf(session *gocql.Session, table string) (scyllacdc.ProgressManager, error) {
	if name := os.Getenv("INTEROP_PROGRESS"); name != "" {
		// The table is the name of the application too: the library keeps one generation for each of these.
		return scyllacdc.NewTableBackedProgressManager(session, name, table)
	}
	return noProgress{}, nil
}

type noProgress struct{}

func (noProgress) GetCurrentGeneration(context.Context) (time.Time, error) { return time.Time{}, nil }

func (noProgress) StartGeneration(context.Context, time.Time) error { return nil }

func (noProgress) GetProgress(context.Context, time.Time, string, scyllacdc.StreamID) (scyllacdc.Progress, error) {
	return scyllacdc.Progress{}, nil
}

func (noProgress) SaveProgress(context.Context, time.Time, string, scyllacdc.StreamID, scyllacdc.Progress) error {
	return nil
}

// printer writes log rows to standard output. Consumers of several streams share it.
type printer struct {
	mutex sync.Mutex
	out   *json.Encoder
}

func (p *printer) CreateChangeConsumer(
	_ context.Context, input scyllacdc.CreateChangeConsumerInput,
) (scyllacdc.ChangeConsumer, error) {
	return &consumer{p, input.TableName, input.ProgressReporter}, nil
}

// consumer prints the rows of one stream, and then marks them as done.
type consumer struct {
	printer  *printer
	table    string
	reporter *scyllacdc.ProgressReporter
}

func (c *consumer) Consume(ctx context.Context, change scyllacdc.Change) error {
	if err := c.printer.print(c.table, change); err != nil {
		return err
	}
	return c.reporter.MarkProgress(ctx, scyllacdc.Progress{LastProcessedRecordTime: change.Time})
}

func (c *consumer) End() error { return nil }

func (p *printer) print(table string, change scyllacdc.Change) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, placed := range inOrder(change) {
		columns, err := columnsOf(placed.row)
		if err != nil {
			return err
		}
		columns["cdc$batch_seq_no"] = placed.number
		if placed.last {
			columns["cdc$end_of_batch"] = true
		}
		columns["cdc$stream_id"] = "0x" + change.StreamID.String()
		columns["cdc$time"] = change.Time.String()
		if err := p.out.Encode(map[string]any{"table": table[strings.IndexByte(table, '.')+1:], "row": columns}); err != nil {
			return err
		}
	}
	return nil
}

// placedRow is a row with its place in its record.
type placedRow struct {
	row    *scyllacdc.ChangeRow
	number int32
	last   bool
}

// columnsOf returns what the library tells of a row, by column of the log, null columns left out.
func columnsOf(row *scyllacdc.ChangeRow) (map[string]any, error) {
	columns := map[string]any{"cdc$operation": int(row.GetOperation())}
	if ttl := row.GetTTL(); ttl != 0 {
		columns["cdc$ttl"] = ttl
	}
	for _, column := range row.Columns() {
		if strings.HasPrefix(column.Name, "cdc$") && !strings.HasPrefix(column.Name, "cdc$deleted_") {
			continue
		}
		raw, _ := row.GetValue(column.Name)
		value, err := plain(column.TypeInfo, raw)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", column.Name, err)
		}
		if value != nil {
			columns[column.Name] = value
		}
	}
	return columns, nil
}
