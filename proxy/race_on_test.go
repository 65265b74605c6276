// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package proxy

// shrink divides what the large tests move: the race detector makes them slower.
const shrink = 8
