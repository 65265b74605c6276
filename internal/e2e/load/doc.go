// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package load runs the load test on real brokers, for a short time: its tests start Java,
// and so they stand apart from those that need Go only.
package load
