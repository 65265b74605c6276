// SPDX-FileCopyrightText: the tiergate authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in /proc: USER_HZ, which is 100 on every Linux that
// Go runs on (proc(5)).
const clockTick = 10 * time.Millisecond

// cpuTime returns the CPU time that processes have used, all threads together.
func cpuTime(pids []int) (time.Duration, error) {
	total := time.Duration(0)
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("CPU time: %w", err)
		}
		d, err := cpuOfStat(stat)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		total += d
	}
	return total, nil
}

// cpuOfStat reads utime and stime, the 14th and 15th field of /proc/PID/stat. The
// second field is a name that may hold anything, so fields are counted after its end.
func cpuOfStat(stat []byte) (time.Duration, error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected stat %q", stat)
	}
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(userErr, systemErr)
}

// machineBusy returns the CPU time that all processes of the machine have used.
func machineBusy() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return busyOfStat(stat)
}

// busyOfStat adds up the first line of /proc/stat without idle and iowait, and without
// guest times, which are part of user and nice.
func busyOfStat(stat []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("unexpected /proc/stat %q", line)
	}
	ticks := int64(0)
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("unexpected /proc/stat %q", line)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// memory is what processes have resident, in bytes: now, and at most since the last
// resetPeak. Pages that processes share count for each of them.
type memory struct {
	now, peak int64
}

func memoryOf(pids []int) (memory, error) {
	var total memory
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return memory{}, fmt.Errorf("memory: %w", err)
		}
		now, nowErr := kilobytes(status, "VmRSS:")
		peak, peakErr := kilobytes(status, "VmHWM:")
		if err = errors.Join(nowErr, peakErr); err != nil {
			return memory{}, fmt.Errorf("memory of process %d: %w", pid, err)
		}
		total.now += now
		total.peak += peak
	}
	return total, nil
}

// kilobytes finds a line like "VmRSS:	  1234 kB" in /proc/PID/status.
func kilobytes(status []byte, name string) (int64, error) {
	for line := range bytes.Lines(status) {
		fields := strings.Fields(string(line))
		if len(fields) == 3 && fields[0] == name && fields[2] == "kB" {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("no line %s in /proc/PID/status", name)
}

// resetPeak sets VmHWM to VmRSS (proc(5), clear_refs).
func resetPeak(pids []int) error {
	for _, pid := range pids {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
			return fmt.Errorf("reset peak memory: %w", err)
		}
	}
	return nil
}

// family returns pid and its children, sorted.
func family(pid int) ([]int, error) {
	pids := []int{pid}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			return nil, err
		}
		for _, field := range strings.Fields(string(children)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			pids = append(pids, child)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// descriptorsOf counts the open descriptors of a process.
func descriptorsOf(pid int) (int, error) {
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(names), err
}
