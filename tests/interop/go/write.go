package main

import (
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

const (
	manyBatches    = 40
	rowsPerBatch   = 130
	morePartitions = 32

	routedPartitions = 100
)

// address is the user-defined type of that name.
type address struct {
	Street *string `cql:"street"`
	Zip    *int    `cql:"zip"`
}

func ptr[T any](value T) *T { return &value }

// writer runs statements until one fails; the first error is kept.
type writer struct {
	session *gocql.Session
	err     error
}

func (w *writer) do(statement string, values ...any) {
	if w.err != nil {
		return
	}
	if err := w.session.Query(statement, values...).Exec(); err != nil {
		w.err = fmt.Errorf("%s: %w", statement, err)
	}
}

// doIf runs a conditional statement, which has to be applied or not, as wanted.
func (w *writer) doIf(wanted bool, statement string, values ...any) {
	if w.err != nil {
		return
	}
	applied, err := w.session.Query(statement, values...).MapScanCAS(map[string]any{})
	if err == nil && applied != wanted {
		err = errors.New("it was applied when it should not be, or the reverse")
	}
	if err != nil {
		w.err = fmt.Errorf("%s: %w", statement, err)
	}
}

func (w *writer) batch(kind gocql.BatchType, fill func(add func(statement string, values ...any))) {
	if w.err != nil {
		return
	}
	batch := w.session.NewBatch(kind)
	fill(func(statement string, values ...any) { batch.Query(statement, values...) })
	if err := w.session.ExecuteBatch(batch); err != nil {
		w.err = fmt.Errorf("batch: %w", err)
	}
}

// write runs the workload that test_interop.py expects; a partition key names a case.
func write(session *gocql.Session) error {
	w := &writer{session: session}
	writeScalars(w)
	writeCollections(w)
	writeTypes(w)
	writeDeletes(w)
	writeBatches(w)
	writeConditions(w)
	writeImages(w)
	w.do("INSERT INTO fading (pk, ck, expires) VALUES (?, ?, ?)", 1, 1, time.Now().Unix())
	for b := range manyBatches {
		w.batch(gocql.UnloggedBatch, func(add func(string, ...any)) {
			for i := range rowsPerBatch {
				add("INSERT INTO many (pk, ck, filler) VALUES (?, ?, ?)", 1, b*rowsPerBatch+i, "x")
			}
		})
	}
	return w.err
}

func writeMore(session *gocql.Session) error {
	w := &writer{session: session}
	for pk := range morePartitions {
		w.do("INSERT INTO many (pk, ck, filler) VALUES (?, ?, ?)", pk, -1, "later")
	}
	return w.err
}

func writeScalars(w *writer) {
	id, err := gocql.ParseUUID("3c7f0d3e-9a51-4a0e-8f0b-0123456789ab")
	if err != nil {
		w.err = err
		return
	}
	huge, _ := new(big.Int).SetString("-123456789012345678901234567890", 10)
	w.do("INSERT INTO things (pk, ck, part, name, large, tiny, ratio, flag, raw, moment, id, host, day, price, huge)"+
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		1, 1, "a", "Zoë ☃", int64(1)<<60, int8(-5), 0.1, false, []byte{0, 255, 16},
		time.UnixMilli(1_700_000_000_123), id, net.ParseIP("10.1.2.3"),
		time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), inf.NewDec(-1250, 2), huge)
	w.do("INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?) USING TTL ?", 2, 1, "a", "short-lived", 3600)
	w.do("INSERT INTO things (pk, ck, part, name, large) VALUES (?, ?, ?, ?, ?)", 3, 1, "a", "x", gocql.UnsetValue)
	w.do("UPDATE things SET name = ? WHERE pk = ? AND ck = ? AND part = ?", nil, 3, 1, "a")
	w.do("INSERT INTO things (pk, ck, part, shared, name) VALUES (?, ?, ?, ?, ?)", 4, 1, "a", "for all", "one")
	w.do("UPDATE things SET seen = seen + ? WHERE pk = ?", []int{2, 1}, 4)
}

func writeCollections(w *writer) {
	const where = " WHERE pk = 5 AND ck = 1 AND part = 'a'"
	w.do("INSERT INTO things (pk, ck, part, tags, scores, steps) VALUES (?, ?, ?, ?, ?, ?)",
		5, 1, "a", []string{"red", "blue"}, map[string]int{"x": 1, "y": 2}, []string{"first", "second"})
	w.do("UPDATE things SET tags = tags + ?, scores[?] = ?, steps = steps + ?"+where,
		[]string{"green"}, "z", 3, []string{"third"})
	w.do("UPDATE things SET tags = tags - ?, scores = scores - ?, steps = steps - ?"+where,
		[]string{"red"}, []string{"x"}, []string{"first"})
	w.do("UPDATE things SET tags = ? "+where, []string{"only"})
}

func writeTypes(w *writer) {
	const where = " WHERE pk = 6 AND ck = 1 AND part = 'a'"
	// The driver takes the fields of a tuple as values of their own.
	w.do("INSERT INTO things (pk, ck, part, home, place, pair, grid) VALUES (?, ?, ?, ?, ?, (?, ?), ?)", 6, 1, "a",
		address{ptr("High Street"), nil}, address{ptr("Low Street"), ptr(12)}, 7, "seven", []int{3, 1, 2})
	w.do("UPDATE things SET place.zip = ?"+where, 13)
	w.do("UPDATE things SET pair = (null, null)" + where)
	w.do("UPDATE things SET pair = null" + where)
}

func writeDeletes(w *writer) {
	w.do("INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?)", 7, 1, "a", "gone soon")
	w.do("DELETE FROM things WHERE pk = ? AND ck = ? AND part = ?", 7, 1, "a")
	w.do("DELETE FROM things WHERE pk = ? AND ck > ? AND ck <= ?", 8, 1, 5)
	w.do("DELETE FROM things WHERE pk = ? AND ck = ?", 8, 9)
	w.do("DELETE FROM things WHERE pk = ? AND ck < ?", 8, 3)
	w.do("DELETE FROM things WHERE pk = ?", 9)
}

func writeBatches(w *writer) {
	w.batch(gocql.LoggedBatch, func(add func(string, ...any)) {
		add("INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?)", 10, 1, "a", "in a batch")
		add("UPDATE things SET name = ? WHERE pk = ? AND ck = ? AND part = ?", "too", 10, 2, "a")
		add("DELETE FROM things WHERE pk = ? AND ck = ? AND part = ?", 10, 0, "a")
		add("INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?)", 11, 1, "a", "elsewhere")
	})
	w.batch(gocql.UnloggedBatch, func(add func(string, ...any)) {
		add("UPDATE things SET name = ? WHERE pk = ? AND ck = ? AND part = ?", "stays", 12, 1, "a")
		add("INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?) USING TTL ?", 12, 2, "a", "goes", 60)
	})
}

func writeConditions(w *writer) {
	const insert = "INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?) IF NOT EXISTS"
	const update = "UPDATE things SET name = ? WHERE pk = ? AND ck = ? AND part = ? IF name = ?"
	w.doIf(true, insert, 13, 1, "a", "mine")
	w.doIf(false, insert, 13, 1, "a", "yours")
	w.doIf(true, update, "ours", 13, 1, "a", "mine")
	w.doIf(false, update, "theirs", 13, 1, "a", "mine")
	w.do("INSERT INTO things (pk, ck, part, name) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
		14, 1, "a", "dated", time.Now().UnixMicro())
	w.do("INSERT INTO things JSON ? DEFAULT UNSET", `{"pk": 15, "ck": 1, "part": "a", "name": "from JSON", "tags": ["t"]}`)
}

func writeImages(w *writer) {
	w.do("INSERT INTO images (pk, ck, name) VALUES (?, ?, ?)", 1, 1, "a")
	w.do("UPDATE images SET name = ?, tags = tags + ? WHERE pk = ? AND ck = ?", "b", []string{"t"}, 1, 1)
	w.do("UPDATE images SET shared = ? WHERE pk = ?", "s", 1)
	w.do("DELETE name FROM images WHERE pk = ? AND ck = ?", 1, 1)
	w.do("DELETE FROM images WHERE pk = ? AND ck = ?", 1, 1)
	w.do("DELETE FROM images WHERE pk = ? AND ck > ? AND ck < ?", 1, 1, 5)
}
