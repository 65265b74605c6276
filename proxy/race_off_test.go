// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package proxy

// shrink divides what the large tests move: nothing without the race detector.
const shrink = 1
