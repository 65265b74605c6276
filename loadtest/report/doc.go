// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package report keeps, compares and shows what a run of the load test found out.
//
//   - Run is all of it, with units; WriteJSON and ReadJSON keep it. Whoever measures fills
//     it in, and sets Verdict with Judge at the end. A Run that is being filled belongs to
//     one goroutine; nothing here changes the Run it is given.
//   - Text, for a terminal and as Markdown, and HTML, one page with plots that loads nothing
//     from anywhere, say the same.
//   - Compare puts two runs side by side and says what got worse.
//
// # How to read a report
//
// Machines differ, and one machine differs from minute to minute. So no absolute figure
// means much beside that of another run: what counts is the ratio to the baseline, and that
// of one round, in which the targets had their turns right after each other. A report shows
// the median of these ratios and, in brackets, the least and the most: the spread. A change
// that is smaller than the spread is none. Max and peak are the most of all rounds.
//
// CPU per GB and CPU per million operations are the CPU time of the target's own processes,
// without brokers and clients, by the work of all workloads that ran at the same time: it can
// not be told which of them it was for. A GB is 10^9 bytes of keys and values, before
// compression; MiB of memory are 2^20 bytes.
//
// The percentile plot has the share of operations on a scale on which 90 %, 99 % and 99.9 %
// are equally far apart. A line ends where fewer than ten operations are left: what a
// percentile of less is worth is luck.
//
// # Verdict
//
// Failed says that a record was lost, doubled where the scenario does not allow it, out of
// order or corrupt, that an answer was wrong, that an operation failed for good, or that a
// bound of the scenario does not hold. Incomplete says that none of that was seen, but that
// something was not measured. Only Passed is a proof of anything.
//
// # Plots
//
// They are drawn by uPlot, embedded from the folder uplot; page has our own script and style.
// To look at a page that has a run of ten minutes:
//
//	go test ./loadtest/report -run TestKeep -keep /tmp
package report
