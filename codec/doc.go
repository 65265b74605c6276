// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package codec knows the bytes of the Kafka protocol and nothing else: frame
// sizes, request headers, bounds-checked cursors over message bodies, and edits
// that replace a few bytes of a frame and keep all others.
//
// It has no socket, goroutine or clock. No number that comes from the wire sizes
// an allocation here before it was checked against the bytes that are left.
//
// Every slice that a function of this package returns points into the slice that
// it was given, unless its comment says otherwise. The caller clones what stays.
package codec
