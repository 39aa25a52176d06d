//go:build !legacy

// What the present library offers and that of legacy.mod does not.

package main

import (
	"cmp"
	"slices"
	"time"

	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

// lookOften makes the library look for new generations more often than every 15 seconds.
func lookOften(config *scyllacdc.AdvancedReaderConfig) {
	config.PostGenerationFetchDelay = 50 * time.Millisecond
}

// inOrder returns the rows of a record as they stood in the log: the library hands out images and deltas apart.
func inOrder(change scyllacdc.Change) []placedRow {
	var placed []placedRow
	for _, row := range slices.Concat(change.PreImage, change.Delta, change.PostImage) {
		placed = append(placed, placedRow{row, row.GetSeqNo(), row.GetEndOfBatch()})
	}
	slices.SortFunc(placed, func(a, b placedRow) int { return cmp.Compare(a.number, b.number) })
	return placed
}
