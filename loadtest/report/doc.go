// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package report is what a run of the load test found out: Run is the data, kept as JSON.
package report
