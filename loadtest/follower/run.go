// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package follower

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Options say what Run does.
type Options struct {
	// Versions of Kafka, each with a cluster of its own, one after the other.
	Versions []string
	// Binary is the path of tiergate.
	Binary string
	// Cases are the rows of the table, on topics of the shape Small.
	Cases []Case
	// Headline has the headline's case run too, on a topic of this shape; nil: not.
	Headline *Shape
	// Logger gets the progress. Default: none.
	Logger *slog.Logger
}

// Run plays all followers, of every case, version, path and policy, and Kafka's own beside
// them. Any follower that does not end up with exactly what it should is an error; the
// report then has what was done before.
func Run(ctx context.Context, options Options) (*Report, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	report := &Report{Started: time.Now().UTC(), Shape: Small(), HeadlineShape: options.Headline}
	for _, version := range options.Versions {
		if err := runVersion(ctx, version, options, report); err != nil {
			return report, err
		}
	}
	return report, report.Unequal()
}

// runVersion adds the rows of one version to the report.
func runVersion(ctx context.Context, version string, options Options, report *Report) (err error) {
	l, err := openLab(ctx, version, options.Binary, options.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if options.Headline != nil {
		runs, err := l.plan(ctx, []Case{HeadlineCase()}, *options.Headline)
		if err != nil {
			return err
		}
		rows, err := l.do(ctx, runs)
		report.Headline = append(report.Headline, rows...)
		if err != nil {
			return err
		}
		l.own = nil // of the table only
	}
	if len(options.Cases) == 0 {
		return nil
	}
	runs, err := l.plan(ctx, options.Cases, Small())
	if err != nil {
		return err
	}
	rows, err := l.do(ctx, runs)
	report.Rows = append(report.Rows, rows...)
	if err != nil {
		return err
	}
	own, err := l.doOwn(ctx)
	report.Own = append(report.Own, own...)
	return err
}
