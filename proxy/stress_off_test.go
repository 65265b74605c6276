// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build !stress

package proxy

// What "make stress" makes larger.
const (
	cuts         = 500 / shrink
	stallers     = 200 / shrink
	asleepFrames = 4
	asleepSize   = 64 << 20 / shrink
	asleepTime   = 0
)
