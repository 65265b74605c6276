// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package kafka

import "syscall"

// processAttributes put a child into a process group of its own. There is no parent
// death signal here: a killed test binary leaves its brokers behind.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// reservePorts reserves nothing here.
func reservePorts([]int) bool { return true }
