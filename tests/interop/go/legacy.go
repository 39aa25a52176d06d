//go:build legacy

// What stands in for things that the library of legacy.mod does not offer. Unlike the present one it works with Scylla
// 4.3, of which it reads the old description table.

package main

import (
	"slices"

	scyllacdc "github.com/scylladb/scylla-cdc-go"
)

// lookOften does nothing: the library looks for new generations at its start, then every 15 seconds.
func lookOften(*scyllacdc.AdvancedReaderConfig) {}

// inOrder returns the rows of a record as a log has them. The library keeps their numbers to itself.
func inOrder(change scyllacdc.Change) []placedRow {
	rows := slices.Concat(change.PreImage, change.Delta, change.PostImage)
	placed := make([]placedRow, len(rows))
	for i, row := range rows {
		placed[i] = placedRow{row, int32(i), i == len(rows)-1}
	}
	return placed
}
