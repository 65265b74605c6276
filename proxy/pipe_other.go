// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package proxy

// Where there is no splice(2), all bytes are copied.

const (
	spliceMin      = readSize
	spliceReadSize = readSize
)

type pipe struct{}

// pipeSystem is the part of system that pipes need.
type pipeSystem struct{}

func kernelPipes() pipeSystem { return pipeSystem{} }

type pipes struct {
	sys   *system
	limit int
}

func (*pipes) trim()         {}
func (*pipes) count(*counts) {}
func (*pipes) close()        {}

func (f *flow) splices() bool              { return false }
func (f *flow) splice() (int, bool, error) { return 0, false, nil }
func (c *conn) flushPipe()                 {}
func (c *conn) dropPipe()                  {}

// piped reports whether large frames of the flow go through pipes: none does.
func (f *flow) piped() bool { return false }
