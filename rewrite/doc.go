// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

// Package rewrite decides what happens to each request and response of a session,
// and makes the changes. One file stands for one API that is edited; the file
// table.go lists every API whose answer carries broker addresses.
//
// The default is to pass a frame on as it is: keys and versions that the package
// does not know are opaque. Changes are edits of the bytes that came, not a decoded
// message encoded anew: what is not an address or a version bound stays as the
// broker sent it, unknown tagged fields included.
//
// Nothing here does I/O, knows a clock, or starts a goroutine.
package rewrite
