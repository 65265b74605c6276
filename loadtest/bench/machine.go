// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tiergate/loadtest/kafka"
)

// Machine says where a run took place.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	// Congestion is TCP's congestion control on the machine.
	Congestion string `json:"congestion_control"`
	Go         string `json:"go"`
	HAProxy    string `json:"haproxy"`
	Nginx      string `json:"nginx"`
	Date       string `json:"date"`
}

// ThisMachine describes this machine; what cannot be found out stays empty.
func ThisMachine() Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly)}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range bytes.Lines(text) {
			if name, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
			}
		}
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		m.Congestion = strings.TrimSpace(string(text))
	}
	if out, err := exec.Command("haproxy", "-v").Output(); err == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		first, _, _ = strings.Cut(first, " - ")
		m.HAProxy = first
	}
	if path, err := nginxPath(); err == nil {
		if out, err := exec.Command(path, "-v").CombinedOutput(); err == nil {
			m.Nginx = strings.TrimSpace(strings.TrimPrefix(string(out), "nginx version: "))
		}
	}
	return m
}

// startBroker starts the server as a process of its own and returns where it listens.
func startBroker(ctx context.Context, self string) (*kafka.Process, string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer read.Close()
	cmd := exec.Command(self, "broker")
	cmd.Stdout, cmd.Stderr = write, os.Stderr
	process, err := kafka.StartProcess(cmd)
	_ = write.Close()
	if err != nil {
		return nil, "", fmt.Errorf("start the server: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = read.Close() })
	defer stop()
	var address string
	if _, err = fmt.Fscanln(read, &address); err != nil {
		process.Kill()
		return nil, "", fmt.Errorf("start the server: it did not say where it listens: %w", err)
	}
	return process, address, nil
}
