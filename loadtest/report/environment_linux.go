// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// look fills in what the kernel says.
func (e *Environment) look() {
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		e.CPU = modelOf(text)
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		e.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		e.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		e.Congestion = strings.TrimSpace(string(text))
	}
}

// modelOf finds the model in /proc/cpuinfo; empty on machines that do not say.
func modelOf(cpuinfo []byte) string {
	for line := range bytes.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
