// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package kafka

import "syscall"

// processAttributes put a child into a process group of its own, and have the kernel
// kill it when its parent dies in whatever way, a killed test binary among them.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
