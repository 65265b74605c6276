// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build stress

package proxy

import "time"

// Sizes of "make stress": 5,000 connections cut, 400 that stall, 4 GB each way in frames
// of 100 MB with both sides asleep.
const (
	cuts         = 5000
	stallers     = 400
	asleepFrames = 41
	asleepSize   = 100_000_000
	asleepTime   = 20 * time.Second
)
